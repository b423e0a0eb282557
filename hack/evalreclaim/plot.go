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
)

// Colours that people with any sight tell apart, after Okabe and Ito.
func colours() []color.Color {
	return []color.Color{
		color.RGBA{R: 0, G: 114, B: 178, A: 255}, color.RGBA{R: 213, G: 94, A: 255}, color.RGBA{G: 158, B: 115, A: 255},
		color.RGBA{R: 86, G: 180, B: 233, A: 255}, color.RGBA{R: 230, G: 159, A: 255},
	}
}

// plots draws what the tables say.
func plots(sets []set, idle []idleRow) error {
	for _, one := range []struct {
		name   string
		draw   func() (*plot.Plot, error)
		legend vg.Length
	}{
		{"oversubscription-idle.svg", func() (*plot.Plot, error) { return idlePlot(idle) }, 10},
		{"oversubscription-frontier.svg", func() (*plot.Plot, error) { return frontierPlot(sets) }, 390},
		{"oversubscription-week.svg", func() (*plot.Plot, error) { return weekPlot(sets[0]) }, 10},
	} {
		p, err := one.draw()
		if err != nil {
			return err
		}
		p.BackgroundColor = color.White
		// Texts grow to the right, into room that is free, whatever the reader's font.
		p.Legend.Left, p.Legend.Top, p.Legend.XOffs = true, one.legend < 100, one.legend
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

// frontierPlot shows what is lent against how often that was too much: for each trace a dashed
// line for the first edition and two for the forecast. The oracle is at the upper left.
func frontierPlot(sets []set) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text = "intervals whose next one exceeded the forecast, percent"
	p.Y.Label.Text = "lent, of what the oracle lends"
	p.Y.Min, p.Y.Max, p.X.Min, p.X.Max = 0, 1.02, 0, 3
	p.Add(plotter.NewGrid())
	for i, s := range sets {
		for k, list := range frontier() {
			var points plotter.XYs
			for _, c := range list {
				sc := measure(s, c)
				if at := (plotter.XY{X: 100 * sc.violated(), Y: sc.ofOracle()}); at.X <= p.X.Max && at.Y >= p.Y.Min {
					points = append(points, at)
				}
			}
			line, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return nil, err
			}
			line.Color, line.Width, dots.Color, dots.Radius = colours()[i], vg.Points(1.2), colours()[i], 2.5
			dots.Shape = []draw.GlyphDrawer{draw.CrossGlyph{}, draw.CircleGlyph{}, draw.TriangleGlyph{}}[k]
			if k == 0 {
				line.Dashes = []vg.Length{3, 3}
			}
			p.Add(line, dots)
			p.Legend.Add(s.name+[]string{", first edition", ", horizon 15 min", ", horizon 5 min"}[k], line, dots)
		}
	}
	oracle, err := plotter.NewScatter(plotter.XYs{{X: 0, Y: 1}})
	if err != nil {
		return nil, err
	}
	oracle.Shape, oracle.Radius = draw.PyramidGlyph{}, 5
	p.Add(oracle)
	p.Legend.Add("oracle, knows the next hour", oracle)
	return p, nil
}

// weekPlot shows the first host's second week as the forecast sees it.
func weekPlot(s set) (*plot.Plot, error) {
	h := s.hosts[0]
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "day", "CPUs"
	p.Y.Min, p.Y.Max = 0, h.limit()
	var used, expected plotter.XYs
	total, foreseen := h.total(), usual().foresee(h)
	for t := 7 * day; t < min(len(total), 14*day); t += 2 {
		at := float64(t) / day
		used = append(used, plotter.XY{X: at, Y: total[t]})
		expected = append(expected, plotter.XY{X: at, Y: min(max(foreseen[t], total[t]), h.limit())})
	}
	for i, v := range []struct {
		label  string
		points plotter.XYs
	}{{"used", used}, {"foreseen: the rest of the node can be lent", expected}} {
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
