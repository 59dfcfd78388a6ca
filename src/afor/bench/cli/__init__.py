"""Provide the command `afor`: parse arguments, call one function, print.

`app` has the table of commands and loads a command's module when it is called; each module defines
one family of commands. `options` defines what they share, also as groups: a command that takes a
dataclass has one option per field. Imports every other package; nothing imports it. Start reading
at `app.Commands`.
"""
