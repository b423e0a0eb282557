package main

import (
	"bytes"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/quietcore/quietcore/reclaim"
)

// Colours that people with any sight tell apart, after Okabe and Ito.
func colours() []color.Color {
	return []color.Color{
		color.RGBA{R: 0, G: 114, B: 178, A: 255}, color.RGBA{R: 213, G: 94, A: 255}, color.RGBA{G: 158, B: 115, A: 255},
		color.RGBA{R: 86, G: 180, B: 233, A: 255}, color.RGBA{R: 230, G: 159, A: 255},
	}
}

// plots draws what the tables say.
func plots(sets []set, idle []idleRow, scores map[string][]*score) error {
	for _, one := range []struct {
		name   string
		draw   func() (*plot.Plot, error)
		legend vg.Length
	}{
		{"oversubscription-idle.svg", func() (*plot.Plot, error) { return idlePlot(idle) }, 10},
		{"oversubscription-predictors.svg", func() (*plot.Plot, error) { return predictorPlot(sets, scores) }, 330},
		{"oversubscription-week.svg", func() (*plot.Plot, error) { return weekPlot(sets[0]) }, 10},
	} {
		p, err := one.draw()
		if err != nil {
			return err
		}
		p.BackgroundColor = color.White
		// Texts grow to the right, into room that is free, whatever the reader's font.
		p.Legend.Left, p.Legend.Top, p.Legend.XOffs = true, true, one.legend
		canvas := vgsvg.New(24*vg.Centimeter, 10*vg.Centimeter)
		p.Draw(draw.Crop(draw.New(canvas), 10, -40, 5, -10)) // labels reach over the edge
		var text bytes.Buffer
		if _, err := canvas.WriteTo(&text); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(page), one.name), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// idlePlot shows two bars a rule and trace: the idle share and its flips.
func idlePlot(rows []idleRow) (*plot.Plot, error) {
	p := plot.New()
	p.Y.Label.Text = "percent"
	p.Y.Min, p.Y.Max = 0, 120 // room for the legend
	var names []string
	var share, cores, flips plotter.Values
	for _, r := range rows {
		names = append(names, r.rule+"\n"+r.set)
		share, cores, flips = append(share, 100*r.share()), append(cores, 100*r.cores), append(flips, 100*r.flip())
	}
	for i, v := range []struct {
		label  string
		values plotter.Values
	}{{"idle VM-days", share}, {"idle share of cores", cores}, {"idle today, not tomorrow", flips}} {
		bars, err := plotter.NewBarChart(v.values, 10)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width, bars.Offset = colours()[i], 0, vg.Length(10*(i-1))
		p.Add(bars)
		p.Legend.Add(v.label, bars)
	}
	p.NominalX(names...)
	p.X.Tick.Label.Font.Size = 9
	return p, nil
}

// predictorPlot shows what each predictor saves and how often it was wrong.
func predictorPlot(sets []set, scores map[string][]*score) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text = "intervals whose next hour exceeded the expectation, percent"
	p.Y.Label.Text = "saving, percent"
	p.Y.Min, p.Y.Max, p.X.Min = 0, 100, -0.1
	p.Add(plotter.NewGrid())
	for i, s := range sets {
		var points, chosen plotter.XYs
		for _, sc := range scores[s.name] {
			at := plotter.XY{X: 100 * sc.violated(0), Y: 100 * sc.saving()}
			points = append(points, at)
			if sc.isDefault() {
				chosen = append(chosen, at)
			}
		}
		for _, v := range []struct {
			points plotter.XYs
			shape  draw.GlyphDrawer
			radius vg.Length
		}{{points, draw.CircleGlyph{}, 2.5}, {chosen, draw.RingGlyph{}, 6}} {
			dots, err := plotter.NewScatter(v.points)
			if err != nil {
				return nil, err
			}
			dots.Color, dots.Shape, dots.Radius = colours()[i], v.shape, v.radius
			p.Add(dots)
			if v.radius < 5 {
				p.Legend.Add(s.name, dots)
			}
		}
	}
	return p, nil
}

// weekPlot shows the first host's second week as the default predictor sees it.
func weekPlot(s set) (*plot.Plot, error) {
	h := s.hosts[0]
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "day", "CPUs"
	p.Y.Min, p.Y.Max = 0, h.limit()
	spec, err := reclaim.ParsePredictor(reclaim.DefaultPredictor)
	if err != nil {
		return nil, err
	}
	predictor := spec.Build(day)
	var used, expected plotter.XYs
	total := h.total()
	for t := range min(len(total), 14*day) {
		in := reclaim.Production{Cell: uint32(t), Seconds: period, Request: h.limit(), Use: total[t]}
		predictor.Observe(in)
		if t < 7*day || t%2 == 1 {
			continue
		}
		at := float64(t) / day
		used = append(used, plotter.XY{X: at, Y: total[t]})
		expected = append(expected, plotter.XY{X: at, Y: min(max(predictor.Peak(in), in.Use), h.limit())})
	}
	for i, v := range []struct {
		label  string
		points plotter.XYs
	}{{"used", used}, {"expected peak: the rest of the node can be lent", expected}} {
		line, err := plotter.NewLine(v.points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = colours()[i], vg.Points(1)
		p.Add(line)
		p.Legend.Add(v.label, line)
	}
	return p, nil
}
