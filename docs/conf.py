"""How Sphinx makes a site of what ``scripts/build_docs.py`` lays out; nothing in it is loaded from elsewhere."""

from __future__ import annotations

from anabranch import __version__

project = "Anabranch"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

myst_heading_anchors = 4
"""Headings are linked to by the names that code hosts give them."""

# The reference: names as they are imported, an argument a line where there are many.
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 90
napoleon_use_ivar = True
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# A name that a page mentions must be in the reference; types of other libraries in signatures are not looked for.
nitpicky = True
nitpick_ignore_regex = [("py:(class|data|exc|attr|meth|func)", ".*"), ("py:obj", r"typing\..*")]

html_theme = "furo"
html_title = "Anabranch"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00695c", "color-brand-content": "#00796b"},
    "dark_css_variables": {"color-brand-primary": "#4db6ac", "color-brand-content": "#4db6ac"},
}
