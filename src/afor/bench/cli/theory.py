"""placeholder"""


def register(app): ...
