"""Provide the command `afor`: parse arguments, call one function, print.

`app` collects the commands; each module defines one family of them. Imports every other
package; nothing imports it. Start reading at `app.main`.
"""
