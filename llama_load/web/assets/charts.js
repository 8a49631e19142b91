// Charts over time with Bokeh. `LiveCharts.update(series, fresh)` takes the steps that have changed, `fresh` all of them anew.
"use strict";
class LiveCharts {
  // `settles`: drawn as far as it is complete, see `settled_s`.
  static SPECS = [
    {title: "TTFT", unit: "ms", settles: true, lines: [["p50_ttft_ms", "p50"], ["p90_ttft_ms", "p90"], ["p99_ttft_ms", "p99"]]},
    {title: "ITL", unit: "ms", settles: true, lines: [["p50_itl_ms", "p50"], ["p90_itl_ms", "p90"], ["p99_itl_ms", "p99"]]},
    {title: "Output", unit: "tok/s", settles: true, lines: [["output_tok_per_s", "output"]]},
    {title: "At the client", unit: "requests", lines: [["g:in_flight", "in flight"], ["g:waiting", "waiting"]]},
    {title: "Ended", unit: "requests/s", lines: [["requests_per_s", "ended"], ["failures_per_s", "failed"]]},
  ];

  constructor(root) {
    this.root = root;
    this.specs = [];
    this.rows = new Map();
    this.charts = [];
    this.settled = Infinity;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  static flat(series) {
    const columns = {...series};
    for (const [name, values] of Object.entries(series.gauges)) columns["g:" + name] = values;
    delete columns.gauges;
    return columns;
  }

  update(series, fresh, meters) {
    if (fresh) this.rows.clear();
    const columns = LiveCharts.flat(series);
    const names = Object.keys(columns).filter((name) => Array.isArray(columns[name]));
    columns.step.forEach((step, place) => {
      const row = {};
      for (const name of names) row[name] = columns[name][place];
      this.rows.set(step, row);
    });
    this.settled = series.settled_s;
    const wanted = [...LiveCharts.SPECS, ...meters];
    if (JSON.stringify(wanted) !== JSON.stringify(this.specs)) {
      this.specs = wanted;
      this.rebuild();
    } else this.draw();
  }

  rebuild() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.colours = {ink: colour("--soft"), line: colour("--line"), bad: colour("--bad"), series: [1, 2, 3].map((n) => colour(`--line-${n}`))};
    this.root.replaceChildren();
    this.charts = this.specs.map((spec) => this.build(spec));
    this.draw();
  }

  build(spec) {
    const colours = this.colours;
    const colour = (name, place) => (name.includes("failures") ? colours.bad : colours.series[place % 3]);
    const box = document.createElement("figure");
    box.className = "chart";
    const title = document.createElement("figcaption");
    const name = document.createElement("b");
    name.textContent = `${spec.title} (${spec.unit})`;
    const legend = document.createElement("span");
    legend.className = "legend";
    spec.lines.forEach(([key, label], place) => {
      const mark = document.createElement("i");
      mark.style.background = colour(key, place);
      legend.append(mark, label);
    });
    const plot = document.createElement("div");
    plot.className = "plot";
    plot.setAttribute("role", "img");
    title.append(name, legend);
    box.append(title, plot);
    this.root.append(box);
    const data = {t: []};
    for (const [key] of spec.lines) data[key] = data["dot " + key] = [];
    const source = new Bokeh.ColumnDataSource({data});
    const hover = new Bokeh.HoverTool({
      tooltips: [["time", "@t{0} s"], ...spec.lines.map(([key, label]) => [label, `@{${key}}{0,0.[00]} ${spec.unit}`])],
      mode: "vline", point_policy: "follow_mouse", renderers: [],
    });
    const time = new Bokeh.Range1d({start: 0, end: 1});
    const figure = new Bokeh.Plotting.figure({
      height: 210, sizing_mode: "stretch_width", tools: [], toolbar_location: null, y_range: new Bokeh.DataRange1d({start: 0, min_interval: 0.01}),
      x_range: time, background_fill_alpha: 0, border_fill_alpha: 0, outline_line_color: null, min_border: 4, min_border_left: 64,
    });
    const glyphs = spec.lines.map(([key], place) =>
      figure.line({field: "t"}, {field: key}, {source, line_color: colour(key, place), line_width: 2}));
    // A line needs two neighbours: a value without any is a point.
    spec.lines.forEach(([key], place) =>
      figure.scatter({field: "t"}, {field: "dot " + key}, {source, color: colour(key, place), size: 6}));
    hover.renderers = glyphs.slice(0, 1);
    figure.add_tools(hover);
    figure.xaxis.axis_label = "s since the run began";
    figure.yaxis.axis_label = spec.unit;
    for (const [axis, grid] of [[figure.xaxis, figure.xgrid], [figure.yaxis, figure.ygrid]]) {
      axis.axis_line_color = colours.line;
      axis.major_tick_line_color = null;
      axis.minor_tick_line_color = null;
      axis.major_label_text_color = colours.ink;
      axis.axis_label_text_color = colours.ink;
      axis.axis_label_text_font_style = "normal";
      axis.axis_label_standoff = 2;
      axis.formatter = new Bokeh.BasicTickFormatter({use_scientific: false});  // as many digits as tell the ticks apart
      axis.ticker = grid.ticker = new Bokeh.BasicTicker({desired_num_ticks: 5, num_minor_ticks: 0});
    }
    figure.xgrid.grid_line_color = null;
    figure.ygrid.grid_line_color = colours.line;
    Bokeh.Plotting.show(figure, plot);
    return {source, spec, plot, time};
  }

  draw() {
    const rows = [...this.rows.keys()].sort((one, other) => one - other).map((step) => this.rows.get(step));
    const t = rows.map((row) => row.t_s);
    for (const {source, spec, plot, time} of this.charts) {
      time.end = Math.max(1, t[t.length - 1] ?? 1);  // the same for all: a moment is at the same place in each chart
      const data = {t};
      for (const [key] of spec.lines) {
        const values = rows.map((row) => (spec.settles && row.t_s > this.settled ? null : row[key]) ?? NaN);
        data[key] = values;
        data["dot " + key] = values.map((value, place) => (isNaN(values[place - 1] ?? NaN) && isNaN(values[place + 1] ?? NaN) ? value : NaN));
      }
      source.data = data;
      plot.setAttribute("aria-label", LiveCharts.text(spec, data));
    }
  }

  // What a chart shows, in words.
  static text(spec, data) {
    const parts = spec.lines.map(([key, label]) => {
      const known = data[key].filter((value) => !isNaN(value));
      const shown = (value) => value.toLocaleString("en", {maximumSignificantDigits: 3});
      return known.length ? `${label} now ${shown(known[known.length - 1])}, from ${shown(Math.min(...known))} to ${shown(Math.max(...known))}` : `${label} not known yet`;
    });
    return `${spec.title} over time in ${spec.unit}: ${parts.join("; ")}`;
  }
}
