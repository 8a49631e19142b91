// Charts over time with Bokeh. `LiveCharts.update(series, fresh)` takes the steps that have changed, `fresh` all of them anew.
"use strict";
class LiveCharts {
  static SPECS = [
    {title: "TTFT (ms)", lines: [["p50_ttft_ms", "p50"], ["p90_ttft_ms", "p90"], ["p99_ttft_ms", "p99"]]},
    {title: "ITL (ms)", lines: [["p50_itl_ms", "p50"], ["p90_itl_ms", "p90"], ["p99_itl_ms", "p99"]]},
    {title: "Output (tok/s)", lines: [["output_tok_per_s", "output"]]},
    {title: "Requests at the client", lines: [["g:in_flight", "in flight"], ["g:waiting", "waiting"]]},
    {title: "Ended (per second)", lines: [["requests_per_s", "ended"], ["failures_per_s", "failed"]]},
  ];

  constructor(root) {
    this.root = root;
    this.specs = [];
    this.rows = new Map();
    this.charts = new Map();
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
    const wanted = [...LiveCharts.SPECS, ...meters];
    if (JSON.stringify(wanted) !== JSON.stringify(this.specs)) {
      this.specs = wanted;
      this.rebuild();
    } else this.draw();
  }

  rebuild() {
    this.root.replaceChildren();
    this.charts.clear();
    for (const spec of this.specs) this.add(spec);
    this.draw();
  }

  colours() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return dark
      ? {ink: "#9aa4ad", line: "#343a40", series: ["#5fd3a6", "#7fb8ff", "#ffb070"], bad: "#ff8a80"}
      : {ink: "#5c6670", line: "#e3e7eb", series: ["#0b7a55", "#1f6fd0", "#d9680f"], bad: "#b3261e"};
  }

  add(spec) {
    const colours = this.colours();
    const colour = (name, place) => (name.includes("failures") ? colours.bad : colours.series[place % 3]);
    const box = document.createElement("div");
    box.className = "chart";
    const title = document.createElement("h3");
    title.textContent = spec.title;
    const legend = document.createElement("p");
    legend.className = "legend";
    spec.lines.forEach(([name, label], place) => {
      const mark = document.createElement("i");
      mark.style.background = colour(name, place);
      legend.append(mark, label);
    });
    const plot = document.createElement("div");
    plot.className = "plot";
    box.append(title, legend, plot);
    this.root.append(box);
    const data = {t: []};
    spec.lines.forEach(([name]) => (data[name] = []));
    const source = new Bokeh.ColumnDataSource({data});
    const hover = new Bokeh.HoverTool({
      tooltips: [["time", "@t{0} s"], ...spec.lines.map(([name, label]) => [label, `@{${name}}{0,0.[00]}`])],
      mode: "vline", point_policy: "follow_mouse", renderers: [],
    });
    const figure = new Bokeh.Plotting.figure({
      height: 200, sizing_mode: "stretch_width", tools: [], toolbar_location: null, y_range: new Bokeh.DataRange1d({start: 0}),
      x_range: new Bokeh.DataRange1d({start: 0, range_padding: 0}), background_fill_alpha: 0, border_fill_alpha: 0,
      outline_line_color: null, min_border: 4,
    });
    const glyphs = spec.lines.map(([name], place) =>
      figure.line({field: "t"}, {field: name}, {source, line_color: colour(name, place), line_width: 2}));
    // A line of one point is invisible: a run of a second has points.
    const points = spec.lines.map(([name], place) =>
      figure.scatter({field: "t"}, {field: name}, {source, color: colour(name, place), size: 7}));
    hover.renderers = glyphs.slice(0, 1);
    figure.add_tools(hover);
    for (const axis of [figure.xaxis, figure.yaxis]) {
      axis.axis_line_color = colours.line;
      axis.major_tick_line_color = null;
      axis.minor_tick_line_color = null;
      axis.major_label_text_color = colours.ink;
    }
    figure.xgrid.grid_line_color = null;
    figure.ygrid.grid_line_color = colours.line;
    figure.yaxis.formatter = new Bokeh.NumeralTickFormatter({format: "0,0.[00]"});
    Bokeh.Plotting.show(figure, plot);
    this.charts.set(spec.title, {source, spec, points});
  }

  draw() {
    const rows = [...this.rows.keys()].sort((one, other) => one - other).map((step) => this.rows.get(step));
    for (const {source, spec, points} of this.charts.values()) {
      for (const each of points) each.visible = rows.length < 3;
      const data = {t: rows.map((row) => row.t_s)};
      for (const [name] of spec.lines) data[name] = rows.map((row) => row[name] ?? NaN);
      source.data = data;
    }
  }
}
