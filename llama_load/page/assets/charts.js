// Charts over time with Bokeh. `LiveCharts.update(series, fresh, meters, stages)` takes the steps that have changed, `fresh` all of them anew.
"use strict";
class LiveCharts {
  // `settles`: drawn as far as it is complete, see `settled_s`. `place`: a large chart, a small one, or one of the client's, which are folded.
  static SPECS = [
    {title: "Output", unit: "tok/s", place: "large", settles: true, lines: [["output_tok_per_s", "output"]]},
    {title: "TTFT", unit: "ms", place: "large", settles: true, dots: "a request", lines: [["p50_ttft_ms", "p50 of a step"]]},
    {title: "ITL", unit: "ms", place: "large", settles: true, lines: [["p50_itl_ms", "p50"], ["p99_itl_ms", "p99"]]},
    {title: "Requests", unit: "requests", place: "small", lines: [["g:in_flight", "in flight"], ["g:waiting", "waiting at the client"]]},
    {title: "Ended", unit: "requests/s", place: "small", lines: [["requests_per_s", "ended"], ["failures_per_s", "failed"]]},
  ];
  static MOST_DOTS = 2000;  // as many as the program keeps
  static COUNTED = ["requests", "count"];  // units of whole numbers

  // `roots`: an element for each `place`.
  constructor(roots) {
    this.roots = roots;
    this.specs = [];
    this.stages = [];
    this.dots = {t: [], value: []};
    this.rows = new Map();
    this.charts = [];
    this.settled = Infinity;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  static flat(series) {
    const columns = {...series};
    for (const [name, values] of Object.entries(series.gauges)) columns["g:" + name] = values;
    delete columns.gauges;
    delete columns.first_tokens;
    return columns;
  }

  update(series, fresh, meters, stages) {
    if (fresh) {
      this.rows.clear();
      this.dots = {t: [], value: []};
    }
    this.dots.t = [...this.dots.t, ...series.first_tokens.t_s].slice(-LiveCharts.MOST_DOTS);
    this.dots.value = [...this.dots.value, ...series.first_tokens.ttft_ms].slice(-LiveCharts.MOST_DOTS);
    const columns = LiveCharts.flat(series);
    const names = Object.keys(columns).filter((name) => Array.isArray(columns[name]));
    columns.step.forEach((step, place) => {
      const row = {};
      for (const name of names) row[name] = columns[name][place];
      this.rows.set(step, row);
    });
    this.settled = series.settled_s;
    const wanted = [...LiveCharts.SPECS, ...meters];
    if (JSON.stringify([wanted, stages]) !== JSON.stringify([this.specs, this.stages])) {
      this.specs = wanted;
      this.stages = stages;
      this.rebuild();
    } else this.draw();
  }

  rebuild() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.colours = {ink: colour("--soft"), line: colour("--line"), bad: colour("--bad"), series: [1, 2, 3].map((n) => colour(`--line-${n}`))};
    for (const root of Object.values(this.roots)) root.replaceChildren();
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
    if (spec.dots) {
      const mark = document.createElement("i");
      mark.className = "dot";
      mark.style.background = colours.series[1];
      legend.append(mark, spec.dots);
    }
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
    this.roots[spec.place].append(box);
    const data = {t: []};
    for (const [key] of spec.lines) data[key] = data["dot " + key] = [];
    const source = new Bokeh.ColumnDataSource({data});
    const hover = new Bokeh.HoverTool({
      tooltips: [["time", "@t{0} s"], ...spec.lines.map(([key, label]) => [label, `@{${key}}{0,0.[00]} ${spec.unit}`])],
      mode: "vline", point_policy: "follow_mouse", renderers: [],
    });
    const time = new Bokeh.Range1d({start: 0, end: 1});
    const figure = new Bokeh.Plotting.figure({
      height: spec.place === "large" ? 250 : 190, sizing_mode: "stretch_width", tools: [], toolbar_location: null, y_range: new Bokeh.DataRange1d({start: 0, min_interval: 0.01}),
      x_range: time, background_fill_alpha: 0, border_fill_alpha: 0, outline_line_color: null, min_border: 4, min_border_left: 64,
    });
    this.stages.forEach(({name, from_s}, place) => {
      const next = this.stages[place + 1];
      figure.add_layout(new Bokeh.BoxAnnotation({left: from_s, ...(next && {right: next.from_s}), fill_color: colours.ink, fill_alpha: place % 2 ? 0.1 : 0.03, line_color: null, level: "underlay"}));
      if (spec.place === "large") {
        figure.add_layout(new Bokeh.Label({x: from_s, y: 2, y_units: "screen", x_offset: 3, text: `stage ${name}`, text_color: colours.ink, text_font_size: "11px"}));
      }
    });
    const dots = new Bokeh.ColumnDataSource({data: {t: [], value: []}});
    if (spec.dots) figure.scatter({field: "t"}, {field: "value"}, {source: dots, color: colours.series[1], size: 5, alpha: 0.45});
    const glyphs = spec.lines.map(([key], place) =>
      figure.line({field: "t"}, {field: key}, {source, line_color: colour(key, place), line_width: 2}));
    // A line needs two neighbours: a value without any is a point.
    spec.lines.forEach(([key], place) =>
      figure.scatter({field: "t"}, {field: "dot " + key}, {source, color: colour(key, place), size: 6}));
    hover.renderers = glyphs.slice(0, 1);
    figure.add_tools(hover);
    figure.xaxis.axis_label = "s since the run began";
    figure.yaxis.axis_label = spec.unit;
    const least = LiveCharts.COUNTED.includes(spec.unit) ? 1 : 0;  // between ticks
    for (const [axis, grid, min_interval] of [[figure.xaxis, figure.xgrid, 0], [figure.yaxis, figure.ygrid, least]]) {
      axis.axis_line_color = colours.line;
      axis.major_tick_line_color = null;
      axis.minor_tick_line_color = null;
      axis.major_label_text_color = colours.ink;
      axis.axis_label_text_color = colours.ink;
      axis.axis_label_text_font_style = "normal";
      axis.axis_label_standoff = 2;
      axis.formatter = new Bokeh.BasicTickFormatter({use_scientific: false});  // as many digits as tell the ticks apart
      axis.ticker = grid.ticker = new Bokeh.BasicTicker({desired_num_ticks: 5, num_minor_ticks: 0, min_interval});
    }
    figure.xgrid.grid_line_color = null;
    figure.ygrid.grid_line_color = colours.line;
    Bokeh.Plotting.show(figure, plot);
    return {source, dots, spec, plot, time};
  }

  draw() {
    const rows = [...this.rows.keys()].sort((one, other) => one - other).map((step) => this.rows.get(step));
    const t = rows.map((row) => row.t_s);
    for (const {source, dots, spec, plot, time} of this.charts) {
      if (spec.dots) dots.data = {...this.dots};
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
