package page

import (
	"io/fs"
	"math"
	"regexp"
	"strconv"
	"testing"

	"github.com/quietcore/quietcore/internal/page/site"
)

type rgb [3]float64 // linear, 0 to 1

// themes are the colours of style.css by name: the light ones, and the dark ones, which
// stand over them.
func themes(t *testing.T) map[string]map[string]rgb {
	t.Helper()
	css, err := fs.ReadFile(site.Shared(), "style.css")
	if err != nil {
		t.Fatal(err)
	}
	roots := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllSubmatch(css, -1)
	if len(roots) != 2 {
		t.Fatalf("style.css has %d times :root, want a light one and a dark one", len(roots))
	}
	value := regexp.MustCompile(`--([\w-]+): #([0-9a-f]{6});`)
	out := map[string]map[string]rgb{"light": {}, "dark": {}}
	for i, name := range []string{"light", "dark"} {
		for _, root := range roots[:i+1] {
			for _, m := range value.FindAllSubmatch(root[1], -1) {
				n, err := strconv.ParseUint(string(m[2]), 16, 32)
				if err != nil {
					t.Fatal(err)
				}
				out[name][string(m[1])] = rgb{linear(n >> 16), linear(n >> 8 & 255), linear(n & 255)}
			}
		}
	}
	return out
}

func linear(sRGB uint64) float64 {
	v := float64(sRGB) / 255
	if v <= 0.04045 {
		return v / 12.92
	}
	return math.Pow((v+0.055)/1.055, 2.4)
}

type matrix [3][3]float64

// visions are Machado, Oliveira and Fernandes, "A Physiologically-based Model for
// Simulation of Color Vision Deficiency" (2009), severity 1, on linear values.
func visions() map[string]matrix {
	return map[string]matrix{
		"no deficiency": {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
		"protanopia": {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216},
			{-0.003882, -0.048116, 1.051998}},
		"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413},
			{-0.011820, 0.042940, 0.968881}},
		"tritanopia": {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602},
			{0.004733, 0.691367, 0.303900}},
	}
}

func (m matrix) of(c rgb) (out rgb) {
	for i, row := range m {
		out[i] = row[0]*c[0] + row[1]*c[1] + row[2]*c[2]
	}
	return out
}

// lab is a colour in CIE L*a*b* (D65), where a distance of about 2.3 is just seen.
func lab(c rgb) [3]float64 {
	for i := range c {
		c[i] = min(max(c[i], 0), 1) // what a screen can show
	}
	xyz := matrix{{0.4124564, 0.3575761, 0.1804375}, {0.2126729, 0.7151522, 0.0721750},
		{0.0193339, 0.1191920, 0.9503041}}.of(c)
	var f [3]float64
	for i, white := range []float64{0.95047, 1, 1.08883} {
		const e, k = 216.0 / 24389, 24389.0 / 27
		if v := xyz[i] / white; v > e {
			f[i] = math.Cbrt(v)
		} else {
			f[i] = (k*v + 16) / 116
		}
	}
	return [3]float64{116*f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])}
}

func distance(a, b rgb) float64 {
	p, q := lab(a), lab(b)
	return math.Hypot(math.Hypot(p[0]-q[0], p[1]-q[1]), p[2]-q[2])
}

// The measure is right: distances and a simulated colour that are known.
func TestDistanceOfColours(t *testing.T) {
	white, black, red := rgb{1, 1, 1}, rgb{}, rgb{1, 0, 0}
	if d := distance(white, black); math.Abs(d-100) > 0.1 {
		t.Errorf("white is %.2f from black, want 100", d)
	}
	if l := lab(red); math.Abs(l[0]-53.24) > 0.1 || math.Abs(l[1]-80.09) > 0.1 || math.Abs(l[2]-67.2) > 0.1 {
		t.Errorf("red is %.2f, want 53.24, 80.09, 67.20", l)
	}
	for name, m := range visions() {
		if d := distance(m.of(white), white); d > 0.1 {
			t.Errorf("%s: white is seen %.2f from white", name, d)
		}
	}
}

// Pools can be told apart by people who lack one kind of cone, before signs and patterns
// help: four times what is just seen, in both settings. Those that share a colour
// (exclusive has LSR's; withheld, isolated and offline the page's) differ by those alone.
func TestPoolsWithColourBlindness(t *testing.T) {
	apart(t, 10, "lse", "lsr", "kubelet", "system", "shared", "be", "reserved", "page")
}

// Lines of the timeline can be, before their dashes help, and from what they are
// drawn on.
func TestLinesWithColourBlindness(t *testing.T) {
	apart(t, 25, "s1", "s2", "s3", "s4", "s5", "inner")
}

func apart(t *testing.T, least float64, names ...string) {
	t.Helper()
	for theme, colours := range themes(t) {
		for vision, m := range visions() {
			closest, pair := math.Inf(1), ""
			for i, a := range names {
				for _, b := range names[:i] {
					ca, okA := colours[a]
					cb, okB := colours[b]
					if !okA || !okB {
						t.Fatalf("style.css has no colour --%s or --%s", a, b)
					}
					d := distance(m.of(ca), m.of(cb))
					if d < least {
						t.Errorf("%s, %s: --%s is %.1f from --%s, want %.0f: change one of them in style.css", theme,
							vision, a, d, b, least)
					}
					if d < closest {
						closest, pair = d, a+" and "+b
					}
				}
			}
			t.Logf("%s, %s: the closest are %s, %.1f apart", theme, vision, pair, closest)
		}
	}
}
