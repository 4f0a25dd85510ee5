"""Pictures of a plan: as text, as Mermaid, as SVG."""

from anabranch.query.drawing.mermaid import explain_mermaid
from anabranch.query.drawing.svg import explain_svg
from anabranch.query.drawing.text import explain_text

__all__ = ["explain_mermaid", "explain_svg", "explain_text"]
