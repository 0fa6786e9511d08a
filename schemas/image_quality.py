"""The quality issues of images: the measure of each, and its limit."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

IssueName = Literal[
    "blank", "dark", "bright", "blurred", "low_information", "odd_aspect_ratio", "tiny"
]


class Issue(NamedTuple):
    """A quality issue."""

    measure: str  # the column of `records/`, or "aspect" or "side", which follow from the size
    limit: float
    above: bool  # whether values above the limit are an issue; otherwise those below
    text: str

    @property
    def rule(self) -> str:
        """The rule by which images have the issue, such as "luma_p99 below 81.6"."""
        side = "above" if self.above else "below"
        return f"{self.measure} {side} {self.limit:g}"

    def severity(self, value: Any) -> Any:
        """Returns a sort key of one value or of an array: the worse an image, the smaller."""
        return -value if self.above else value

    def describe(self, value: float) -> str:
        """Returns the measured and the expected value of an image that has the issue."""
        side = "at most" if self.above else "at least"
        return f"{self.text}: expected {self.measure} of {side} {self.limit:g}, got {value:.4g}"


# The limits of cleanvision 0.3.7 (image_property_issue_manager.py), with its values on
# a scale of 0 to 1 in parentheses. Those of blank and tiny images are the limits of the perceptual
# hash. For sharpness, its limit is lowered by what the smaller image lacks in edges: of 400 sharp
# photographs this one finds 2 and cleanvision none, of 100 blurred by 8 pixels 49 and 35. For
# entropy, it is that of cleanlab's Datalab: that of one channel is 1.6 bits below that of three.
ISSUES: dict[IssueName, Issue] = {
    "blank": Issue("luma_std", 4, False, "blank"),
    "dark": Issue("luma_p99", 81.6, False, "dark"),  # 99th percentile of brightness (0.32)
    "bright": Issue("luma_p5", 242.25, True, "bright"),  # 5th percentile (0.95)
    "blurred": Issue("sharpness", 0.2, False, "blurred"),  # (0.29)
    "low_information": Issue("entropy", 1.5, False, "low in information"),  # a tenth of it (0.15)
    "odd_aspect_ratio": Issue("aspect", 0.35, False, "oddly long or tall"),  # short / long (0.35)
    "tiny": Issue("side", 32, False, "tiny"),
}
