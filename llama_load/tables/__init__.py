"""A table as people and programs read it.

Made once for each topic, then drawn as text, Markdown, HTML or JSON.
"""

from llama_load.tables.as_html import html_table
from llama_load.tables.as_markdown import document_lines, markdown_lines
from llama_load.tables.as_text import text_lines, titled_lines
from llama_load.tables.table import (
    LEFT,
    RIGHT,
    Cell,
    Column,
    Row,
    Table,
    columns,
    figure,
    table_json,
    text_of,
    whole,
)

__all__ = [
    "LEFT",
    "RIGHT",
    "Cell",
    "Column",
    "Row",
    "Table",
    "columns",
    "document_lines",
    "figure",
    "html_table",
    "markdown_lines",
    "table_json",
    "text_lines",
    "text_of",
    "titled_lines",
    "whole",
]
