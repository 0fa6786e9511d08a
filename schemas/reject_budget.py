"""How many rows may be rejected before a run fails: in all, and for each reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from pydantic import BaseModel, ConfigDict, Field

from recordmill.schemas.rejects import Reason
from recordmill.schemas.spelling import did_you_mean

_SHOWN_LOST = 3


class RejectLimit(BaseModel):
    """A count of rows, or a part of all rows."""

    model_config = ConfigDict(frozen=True)

    amount: Decimal = Field(default=Decimal(0), ge=0)
    percent: bool = False

    @classmethod
    def parse(cls, text: str) -> RejectLimit:
        """Returns the limit that "3" or "0.5%" stands for.

        Raises:
            ValueError: if the text stands for none.
        """
        match = re.fullmatch(r"([0-9]+)|([0-9]+(?:\.[0-9]+)?)%", text.strip())
        if not match or (match[2] and Decimal(match[2]) > 100):
            raise ValueError(f"expected a number of rows or a percentage like 0.5%, got {text!r}")
        return cls(amount=Decimal(match[1] or match[2]), percent=bool(match[2]))

    def allows(self, rejected: int, rows: int) -> bool:
        """Returns whether so many rejects of so many rows are within the limit."""
        return rejected <= (self.amount * rows / 100 if self.percent else self.amount)

    def __str__(self) -> str:
        return f"{self.amount}%" if self.percent else str(self.amount)


class RejectBudget(BaseModel):
    """A limit for all rejects, and others for those of single reasons.

    Where only reasons have limits, no row may be rejected for any other. No limit allows rows to be
    lost whose number is not known, and these do not count in any other limit.

    Attributes:
        total: of all rejects; None if only reasons have limits.
        reasons: reason to its own limit, which holds beside the total.

    >>> RejectBudget.parse("5%").exceeded({"truncated": 5}, rows=100)
    ()
    >>> RejectBudget.parse("10,truncated=2").exceeded({"truncated": 5}, rows=100)
    ('truncated',)
    >>> RejectBudget.parse("100%").exceeded({"lost_rows": 1}, rows=100)
    ('lost_rows',)
    """

    model_config = ConfigDict(frozen=True)

    total: RejectLimit | None = RejectLimit()
    reasons: dict[Reason, RejectLimit] = {}

    @classmethod
    def parse(cls, text: str) -> RejectBudget:
        """Returns the budget that "10", "0.5%" or "10,truncated=5,read_error=1%" stands for.

        Raises:
            ValueError: if the text stands for none.
        """
        total: RejectLimit | None = None
        reasons: dict[Reason, RejectLimit] = {}
        for part in text.split(","):
            name, named, limit = part.partition("=")
            if not named and total is None:
                total = RejectLimit.parse(part)
            elif not named:
                raise ValueError(f"has two limits for all rejects, {total} and {part.strip()}")
            elif (reason := _reason(name.strip())) in reasons:
                raise ValueError(f"names {reason.value} twice")
            else:
                reasons[reason] = RejectLimit.parse(limit)
        return cls(total=total, reasons=reasons)

    def exceeded(self, rejects: Mapping[str, int], rows: int) -> tuple[str, ...]:
        """Returns what is over its limit, in the order of the names; "all rejects" first.

        Args:
            rejects: reason to how many rows were rejected for it.
            rows: how many rows there are.
        """
        limits = {reason.value: limit for reason, limit in self.reasons.items()}
        counted = {name: count for name, count in rejects.items() if name != Reason.LOST_ROWS.value}
        lost = sum(rejects.values()) - sum(counted.values())
        rows -= lost  # what stands for an unknown number of rows is none itself
        over = {Reason.LOST_ROWS.value} if lost else set[str]()
        for name, count in counted.items():
            limit = limits.get(name, RejectLimit() if self.total is None else None)
            if limit is not None and not limit.allows(count, rows):
                over.add(name)
        everything = sum(counted.values())
        all_over = self.total is not None and not self.total.allows(everything, rows)
        return (*(["all rejects"] if all_over else []), *sorted(over))

    def told(self, over: tuple[str, ...]) -> str:
        """Returns the budget as a message tells it, with what is over where that is not plain."""
        return str(self) if not self.reasons else f"{self}, exceeded by {', '.join(over)}"

    def __str__(self) -> str:
        named = [f"{reason.value}={limit}" for reason, limit in self.reasons.items()]
        return ",".join([*([] if self.total is None else [str(self.total)]), *named])


def lost_rows_message(lost: Iterable[tuple[str, str]]) -> str:
    """Returns what is wrong with input of which an unknown number of rows is lost.

    Args:
        lost: the source and the detail of each such reject.
    """
    ordered = sorted(lost)
    shown = "\n  ".join(f"{source}: {detail}" for source, detail in ordered[:_SHOWN_LOST])
    more = len(ordered) - _SHOWN_LOST
    tail = f"\n  and {more:,} more" if more > 0 else ""
    return (
        f"rows of the input are lost:\n  {shown}{tail}\n"
        "how many cannot be known, so no --max_rejects allows it: "
        "replace the file by a whole copy, or fix it there"
    )


def _reason(name: str) -> Reason:
    if name == Reason.LOST_ROWS.value:
        raise ValueError(f"{name} has no limit: how many rows are lost is not known")
    known = [reason.value for reason in Reason if reason is not Reason.LOST_ROWS]
    if name not in known:
        guess = did_you_mean(name, known)
        raise ValueError(f"{name!r} is no reason{guess}; there are: {', '.join(known)}")
    return Reason(name)
