package dashboards

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// dashboard is what is written to add a panel.
type dashboard struct {
	uid, title, about string
	workload          bool // has a variable of jobs
	rows              []row
}

// row is a headline and the panels below it, left to right, line by line.
type row struct {
	title  string
	panels []panel
}

// panel is one picture. In its queries @ stands for the chosen targets.
type panel struct {
	title, about string
	runbook      string // section of docs/runbook.md
	kind         kind
	unit         string
	width        int // of 24 columns
	queries      []query
	colours      colours
	bounds       bounds
	decimals     *int
	texts        texts
	stacked      bool              // of a time series
	columns      map[string]column // of a table, by name of field
	slow         bool              // grows once in a window of counting
	tall         bool              // a stat as high as the pictures next to it
}

// colours are by value; no steps: one colour.
type colours struct {
	steps  []step
	dashed bool // the steps are lines in the picture, too
}

// bounds are those of an axis or a gauge; nil: as the data says.
type bounds struct{ min, max *float64 }

// texts stand in for values.
type texts struct {
	values []mappedValue // for 0, 1, …
	none   string        // where there is no value
}

type column struct {
	name    string
	unit    string
	order   int
	colours colours
	link    string
	hide    bool
	whole   bool // no decimals: extrapolated counts are no whole numbers
}

type query struct {
	expr   string
	legend string
}

type kind string

const (
	series kind = "timeseries"
	bars   kind = "bars" // a time series drawn as bars
	stat   kind = "stat"
	table  kind = "table"
	heat   kind = "heatmap"
	states kind = "state-timeline"
)

// Units as Grafana calls them.
const (
	count   = "short"
	share   = "percentunit"
	seconds = "s"
	perSec  = "ops"
	cpus    = "suffix: CPUs"
	ratio   = "none"
)

func one(expr, legend string) []query { return []query{{expr, legend}} }

func number(v float64) *float64 { return &v }
func digits(n int) *int         { return &n }

const (
	green  = "green"
	yellow = "yellow"
	orange = "orange"
	red    = "red"
)

func atLeast(v float64) bounds           { return bounds{min: &v} }
func between(least, most float64) bounds { return bounds{&least, &most} }

// from makes colours: the first one, and pairs of a value and the colour from there on.
func from(first string, rest ...any) colours {
	steps := []step{{Color: first}}
	for i := 0; i+1 < len(rest); i += 2 {
		steps = append(steps, step{Color: rest[i+1].(string), Value: number(rest[i].(float64))})
	}
	return colours{steps: steps}
}

// lines draws the steps of colours into the picture, too.
func lines(c colours) colours {
	c.dashed = true
	return c
}

// height is in rows of the grid.
func (p *panel) height() int {
	if p.kind == stat && !p.tall {
		return 4
	}
	return 8
}

func (d *dashboard) grafana() grafanaDashboard {
	out := grafanaDashboard{
		Annotations:  grafanaAnnotations{List: []grafanaAnnotation{alerts()}},
		Description:  d.about,
		Editable:     true,
		GraphTooltip: 1, // one crosshair over all panels
		Links: []grafanaDashLink{
			{AsDropdown: true, Icon: "external link", IncludeVars: true, KeepTime: true, Tags: []string{"quietcore"},
				Title: "Quietcore", Type: "dashboards"},
			{Icon: "doc", Tags: []string{}, TargetBlank: true, Title: "Runbook",
				Tooltip: "What each alert means and what helps", Type: "link", URL: "${runbook}"},
		},
		Refresh: "1m", SchemaVersion: schemaVersion, Tags: []string{"quietcore"},
		Templating: grafanaTemplating{List: d.variables()},
		Time:       grafanaTime{"now-6h", "now"}, Timezone: "browser", Title: d.title, UID: d.uid,
	}
	id, y := 0, 0
	for _, r := range d.rows {
		id++
		open := false
		out.Panels = append(out.Panels, grafanaPanel{Collapsed: &open, GridPos: gridPos{1, columns, 0, y}, ID: id,
			Panels: &[]grafanaPanel{}, Title: r.title, Type: "row"})
		y++
		x, line := 0, 0
		for i := range r.panels {
			p := &r.panels[i]
			if x+p.width > columns {
				x, y, line = 0, y+line, 0
			}
			id++
			out.Panels = append(out.Panels, p.grafana(id, gridPos{p.height(), p.width, x, y}))
			x += p.width
			line = max(line, p.height())
		}
		y += line
	}
	return out
}

// alerts marks in every picture when something fired.
func alerts() grafanaAnnotation {
	return grafanaAnnotation{
		Datasource: prometheus(), Enable: true, Name: "Alerts", IconColor: red,
		Expr: `ALERTS{alertname=~"Quietcore.*",alertstate="firing",node=~"$node"}`, TitleFormat: "{{alertname}}",
		TextFormat: "{{node}}",
	}
}

func with(expr string) string { return strings.ReplaceAll(expr, chosen, selector) }

func (d *dashboard) variables() []grafanaVariable {
	all := &variableValue{Selected: true, Text: "All", Value: "$__all"}
	labels := func(name, label, about, query string) grafanaVariable {
		p := prometheus()
		return grafanaVariable{
			AllValue: ".*", Current: all, Datasource: &p, Definition: query, Description: about, IncludeAll: true,
			Label: label, Multi: true, Name: name,
			Query: variableQuery{Query: query, RefID: "variable-" + name, QryType: 1}, Refresh: 2, Sort: 1,
			Type: "query",
		}
	}
	list := []grafanaVariable{
		{Description: "The Prometheus that scrapes the daemons", Label: "Data source", Name: "datasource",
			Query: "prometheus", Refresh: 1, Type: "datasource"},
		labels("job", "Job", "Prometheus' scrape job", "label_values(quietcore_build_info, job)"),
		labels("node", "Node", "The label node of the targets, which the chart's monitors set",
			`label_values(quietcore_build_info{job=~"$job"}, node)`),
	}
	if d.workload {
		list = append(list, labels("workload", "Workload", "Namespace, owner and container; needs cpi.jobSeries",
			`label_values(quietcore_job_cpi_tasks{`+selector+`}, workload)`))
	}
	constant := variableValue{Selected: true, Text: RunbookURL, Value: RunbookURL}
	return append(list, grafanaVariable{
		Current: &constant, Description: "Where docs/runbook.md is read", Hide: 2, Label: "Runbook", Name: "runbook",
		Options: []variableValue{constant}, Query: RunbookURL, SkipURLSync: true, Type: "constant",
	})
}

func (p *panel) grafana(id int, at gridPos) grafanaPanel {
	prom := prometheus()
	out := grafanaPanel{
		Datasource: &prom, Description: p.about, GridPos: at, ID: id, Title: p.title, Type: string(p.kind),
		Links: []panelLink{{TargetBlank: true, Title: "Runbook", URL: "${runbook}#" + p.runbook}},
	}
	if p.kind == bars {
		out.Type = string(series)
	}
	if p.slow {
		out.Interval = "2m" // two windows, so that every step has one
	}
	for i, q := range p.queries {
		t := target{
			Datasource: prom, EditorMode: "code", Expr: with(q.expr), Format: "time_series", LegendFormat: q.legend,
			Range: true, RefID: string(rune('A' + i)),
		}
		switch p.kind {
		case stat:
			t.Instant, t.Range = true, false
		case table:
			t.Instant, t.Range, t.Format = true, false, "table"
		case heat:
			t.Format = "heatmap"
		}
		out.Targets = append(out.Targets, t)
	}
	out.FieldConfig, out.Options, out.Transformations = p.fields(), p.options(), p.transformations()
	return out
}

func (p *panel) fields() *fieldConfig {
	steps := p.colours.steps
	if steps == nil {
		steps = from(green).steps
	}
	d := fieldDefaults{
		Color: map[string]string{"mode": "palette-classic"}, Mappings: []valueMapping{}, Min: p.bounds.min,
		Max:      p.bounds.max,
		Decimals: p.decimals, NoValue: p.texts.none,
		Thresholds: thresholds{"absolute", steps}, Unit: p.unit,
	}
	switch p.kind {
	case series, bars:
		d.Custom = p.custom()
	case stat, states:
		d.Color = map[string]string{"mode": "thresholds"}
	}
	if p.kind == states {
		d.Custom = map[string]any{"fillOpacity": 70, "lineWidth": 0}
	}
	if len(p.texts.values) > 0 {
		mapped := map[string]mappedValue{}
		for i, s := range p.texts.values {
			s.Index = i
			mapped[fmt.Sprint(i)] = s
		}
		d.Mappings = []valueMapping{{mapped, "value"}}
	}
	return &fieldConfig{d, p.overrides()}
}

func (p *panel) custom() map[string]any {
	c := map[string]any{
		"drawStyle": "line", "fillOpacity": 8, "lineWidth": 1, "showPoints": "never", "spanNulls": false,
		"stacking":        map[string]any{"group": "A", "mode": "none"},
		"thresholdsStyle": map[string]any{"mode": "off"},
	}
	if p.kind == bars {
		maps.Copy(c, map[string]any{"drawStyle": "bars", "fillOpacity": 70, "lineWidth": 0})
	}
	if p.stacked {
		c["stacking"] = map[string]any{"group": "A", "mode": "normal"}
		c["fillOpacity"] = 50
	}
	if p.colours.dashed {
		c["thresholdsStyle"] = map[string]any{"mode": "dashed"}
	}
	return c
}

func (p *panel) overrides() []fieldOverride {
	list := []fieldOverride{}
	for _, name := range sortedColumns(p.columns) {
		c := p.columns[name]
		if c.hide {
			continue
		}
		o := fieldOverride{Matcher: fieldMatcher{"byName", c.name}}
		if c.unit != "" {
			o.Properties = append(o.Properties, fieldProperty{"unit", c.unit})
		}
		if c.whole {
			o.Properties = append(o.Properties, fieldProperty{"decimals", 0})
		}
		if c.colours.steps != nil {
			o.Properties = append(o.Properties, fieldProperty{"thresholds", thresholds{"absolute", c.colours.steps}},
				fieldProperty{"custom.cellOptions", map[string]any{"type": "color-text"}})
		}
		if c.link != "" {
			o.Properties = append(o.Properties, fieldProperty{"links", []panelLink{{Title: "Show this", URL: c.link}}})
		}
		if len(o.Properties) > 0 {
			list = append(list, o)
		}
	}
	return list
}

func (p *panel) options() map[string]any {
	switch p.kind {
	case stat:
		return map[string]any{
			"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
			"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	case table:
		return map[string]any{"cellHeight": "sm", "showHeader": true}
	case heat:
		return map[string]any{
			"calculate": false, "cellGap": 1, "color": map[string]any{"mode": "scheme", "scheme": "Viridis",
				"exponent": 0.5, "steps": 64, "reverse": false, "fill": "dark-orange", "scale": "exponential"},
			"exemplars": map[string]any{"color": "rgba(255,0,255,0.7)"}, "filterValues": map[string]any{"le": 1e-9},
			"legend": map[string]any{"show": true}, "rowsFrame": map[string]any{"layout": "auto"},
			"tooltip": map[string]any{"mode": "single", "yHistogram": false, "showColorScale": false},
			"yAxis":   map[string]any{"axisPlacement": "left", "reverse": false, "unit": "none"},
		}
	case states:
		return map[string]any{
			"alignValue": "left", "legend": map[string]any{"calcs": []string{}, "displayMode": "list",
				"placement": "bottom", "showLegend": false},
			"mergeValues": true, "rowHeight": 0.8, "showValue": "never",
			"tooltip": map[string]any{"mode": "single", "sort": "none"},
		}
	}
	legend := map[string]any{"calcs": []string{}, "displayMode": "list", "placement": "bottom", "showLegend": true}
	if p.width >= columns/2 {
		legend = map[string]any{"calcs": []string{"lastNotNull", "max"}, "displayMode": "table", "placement": "right",
			"showLegend": true}
	}
	return map[string]any{"legend": legend, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
}

func sortedColumns(columns map[string]column) []string {
	return slices.SortedFunc(maps.Keys(columns), func(a, b string) int {
		return cmp.Or(cmp.Compare(columns[a].order, columns[b].order), cmp.Compare(a, b))
	})
}

// transformations make one line of what several queries of a table say of a node.
func (p *panel) transformations() []transform {
	if p.kind != table {
		return nil
	}
	var list []transform
	if len(p.queries) > 1 {
		list = append(list, transform{"joinByField", map[string]any{"byField": "node", "mode": "outer"}})
	}
	exclude, index, rename := map[string]bool{"Time": true}, map[string]int{}, map[string]string{}
	for i := range p.queries {
		exclude[fmt.Sprintf("Time %d", i+1)] = true
	}
	for field, c := range p.columns {
		if c.hide {
			exclude[field] = true
			continue
		}
		index[field], rename[field] = c.order, c.name
	}
	return append(list, transform{"organize", map[string]any{"excludeByName": exclude, "indexByName": index,
		"renameByName": rename}})
}
