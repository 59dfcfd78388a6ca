"""The native path: binds the compiled kernel, says why when it cannot be used."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from afor.control import ControlSettings

if TYPE_CHECKING:
    from afor.optimizer import AFOR


def unavailable_reason() -> str | None:
    """Return why the native kernel cannot be used, or None when it can."""
    return "not built"


class GroupPlan:
    def run(self, optimizer: "AFOR", group: dict[str, Any]) -> bool:
        return False

    @staticmethod
    def prepare(optimizer: "AFOR", group: dict[str, Any]) -> None:
        return None


def fused_afor(*lists: list[Tensor], settings: ControlSettings, **options: Any) -> None:
    raise RuntimeError(unavailable_reason())
