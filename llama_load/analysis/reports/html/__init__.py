"""report.html: the page and its charts. Bokeh is imported only in the functions that draw."""
