"""Plans for people to look at: as text, as Mermaid, as SVG."""
