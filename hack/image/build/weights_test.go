package build

import (
	"os"
	"strings"
	"testing"
)

// TestWeights weighs the test itself.
func TestWeights(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := Weights(path)
	if err != nil {
		t.Fatal(err)
	}
	sum, by := int64(0), map[string]int64{}
	for i, w := range list {
		sum += w.Bytes
		by[w.Module] = w.Bytes
		if i > 0 && list[i-1].Bytes < w.Bytes {
			t.Errorf("%s is heavier than the one before", w.Module)
		}
	}
	if sum < file.Size()*99/100 || sum > file.Size() {
		t.Errorf("together they weigh %d of %d", sum, file.Size())
	}
	if by[Library] < sum/4 || by["github.com/quietcore/quietcore/hack/image"] == 0 {
		t.Errorf("the weights are %v", list)
	}
	if _, err := Weights("weights_test.go"); err == nil {
		t.Error("a text has weights")
	}
}

// TestModuleOf: the longest that fits, at whole parts of a path.
func TestModuleOf(t *testing.T) {
	modules := []string{"a.b/c/v2", "a.b/c/d", "a.b/c"}
	for pkg, want := range map[string]string{"a.b/c": "a.b/c", "a.b/c/x": "a.b/c", "a.b/c/v2/x": "a.b/c/v2",
		"a.b/cd": Library, "a.b/c/d": "a.b/c/d", "net/http": Library} {
		if got := moduleOf(pkg, modules); got != want {
			t.Errorf("%s is in %s, want %s", pkg, got, want)
		}
	}
}

func TestPackageOf(t *testing.T) {
	for name, want := range map[string]string{
		"main.main": "main", "runtime.mallocgc": "runtime",
		"k8s.io/api/core/v1.(*Pod).Unmarshal":                             "k8s.io/api/core/v1",
		"gopkg.in/inf%2ev0.(*Dec).String":                                 "gopkg.in/inf.v0",
		"slices.SortFunc[go.shape.[]k8s.io/api/core/v1.Pod,go.shape.int]": "slices",
		"type:.eq.github.com/x/y.T":                                       "github.com/x/y",
	} {
		if got := packageOf(name); got != want {
			t.Errorf("%s is of %s, want %s", name, got, want)
		}
	}
}

// TestJustify: the page keeps what people wrote, and sizes that are near; what nobody wrote about is refused.
func TestJustify(t *testing.T) {
	const page = "# P\n\nText.\n\n" + head + "| Quietcore | 3.0 | all |\n| `a.b/kept` | 2.0 | a | \n" +
		"| `a.b/gone` | 2.0 | it was |\n| `a.b/grown` | 1.0 | why |\n\nMore.\n"
	list := []Weight{{Library, 9e6}, {"own", 3.2e6}, {"a.b/grown", 2.5e6}, {"a.b/kept", 1.9e6}, {"a.b/light", 9e5}}
	const want = "# P\n\nText.\n\n" + head + "| Go's standard library | 9.0 |  |\n| Quietcore | 3.0 | all |\n" +
		"| `a.b/grown` | 2.5 | why |\n| `a.b/kept` | 2.0 | a |\n| all others | 0.9 | each takes less than 1 MB |\n" +
		"| together | 17.5 |  |\n\nMore.\n"
	got, err := Justify(page, "own", list)
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	if again, err := Justify(got, "own", list); err != nil || again != got {
		t.Errorf("written again it is another: %v\n%s", err, again)
	}
	_, err = Justify(page, "own", append(list, Weight{"a.b/new", 1.1e6}))
	if err == nil || !strings.Contains(err.Error(), "a.b/new takes 1.1 MB") {
		t.Errorf("a heavy dependency that nobody justifies: %v", err)
	}
	if _, err := Justify("", "own", []Weight{{"own", 1e6}}); err != nil {
		t.Errorf("a program without a page: %v", err)
	}
}
