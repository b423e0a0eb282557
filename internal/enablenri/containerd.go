package enablenri

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	nriPlugin      = "io.containerd.nri.v1.nri"
	containerdDrop = "90-quietcore-nri.toml"
	backupSuffix   = ".before-quietcore"
	newestVersion  = 4 // of containerd's configuration
)

var nriTable = []string{"plugins", nriPlugin}

// The runtimes' own values.
const (
	defaultRequest      = 2 * time.Second
	defaultRegistration = 5 * time.Second
)

// ErrGenerated is in the chain where a program writes the configuration.
var ErrGenerated = errors.New("the configuration is generated")

func lookContainerd(files Files, o Options) (*Plan, error) {
	main := path.Join(o.Dir, "config.toml")
	if err := generated(main, files[main]); err != nil {
		return nil, err
	}
	text, there := files[main]
	if !there {
		return lookDefaults(main, o)
	}
	tree, err := load(files, main, o.Dir)
	if err != nil {
		return nil, err
	}
	holder, table, err := tree.table(nriTable)
	if err != nil {
		return nil, err
	}
	settings, err := wanted(table, names{"disable", "disable_connections", "plugin_request_timeout",
		"plugin_registration_timeout"}, o, tree.onByDefault(o))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", holder, err)
	}
	if len(settings) == 0 {
		return nil, nil
	}
	if holder == "" {
		drop := path.Join(o.Dir, "conf.d", containerdDrop)
		if tree.imports(drop) {
			fresh, err := set(drop, fmt.Appendf(nil, "version = %d\n", tree.version), nriTable, settings)
			return &Plan{Path: drop, New: fresh}, err
		}
		holder = main
	}
	backup := path.Join(o.Dir, path.Base(holder)+backupSuffix)
	if tree.imports(backup) {
		return nil,
			fmt.Errorf("the imports of %s would read the backup %s as well; name the files to import more exactly",
				main, backup)
	}
	if holder != main {
		text = files[holder]
	}
	changed, err := set(holder, text, nriTable, settings)
	if err != nil {
		return nil, err
	}
	return &Plan{Path: holder, Old: text, New: changed, Backup: backup}, nil
}

// lookDefaults is for a containerd without a configuration file.
func lookDefaults(main string, o Options) (*Plan, error) {
	major, known := majorOf(o.Version)
	settings, err := wanted(nil, names{"disable", "disable_connections", "plugin_request_timeout",
		"plugin_registration_timeout"}, o, known && major >= 2)
	if err != nil || len(settings) == 0 {
		return nil, err
	}
	// Every containerd that has NRI reads version 2.
	fresh, err := set(main, []byte("version = 2\n"), nriTable, settings)
	return &Plan{Path: main, New: fresh}, err
}

// generated refuses what k3s, RKE2 and their like write anew at every start.
func generated(main string, text []byte) error {
	if !strings.Contains(main, "/rancher/") && !strings.Contains(strings.ToUpper(string(text)), "DO NOT EDIT") {
		return nil
	}
	return fmt.Errorf("%w: %s is written anew at every start of k3s or RKE2; their containerd 2 has NRI on, "+
		"for an older one copy the file to config.toml.tmpl next to it, add [plugins.%q] with disable = false and "+
		"disable_connections = false, and restart k3s or RKE2", ErrGenerated, main, nriPlugin)
}

// tree is a configuration with what it imports.
type tree struct {
	main    string
	version int64
	docs    map[string]map[string]any
	globs   []string
}

func load(files Files, main, dir string) (*tree, error) {
	t := &tree{main: main, docs: map[string]map[string]any{}}
	for pending := []string{main}; len(pending) > 0; pending = pending[1:] {
		name := pending[0]
		if _, seen := t.docs[name]; seen {
			continue
		}
		doc, err := parse(name, files[name])
		if err != nil {
			return nil, err
		}
		t.docs[name] = doc
		if name == main {
			version, ok := doc["version"].(int64)
			if !ok || version < 2 || version > newestVersion {
				return nil,
					fmt.Errorf(
						"%s has version %v; 2 to %d are understood: convert it with `containerd config migrate`", main,
						doc["version"], newestVersion)
			}
			t.version = version
		}
		if err := disabled(name, doc); err != nil {
			return nil, err
		}
		more, err := t.follow(files, name, doc, dir)
		if err != nil {
			return nil, err
		}
		pending = append(pending, more...)
	}
	return t, nil
}

func disabled(name string, doc map[string]any) error {
	list, _ := doc["disabled_plugins"].([]any)
	for _, x := range list {
		if x == nriPlugin {
			return fmt.Errorf("%s has %s in disabled_plugins; take it out by hand", name, nriPlugin)
		}
	}
	return nil
}

// follow returns the files that one imports. Only its own list counts: the
// conf.d that `containerd config default` prints is read where a file says so.
func (t *tree) follow(files Files, name string, doc map[string]any, dir string) ([]string, error) {
	list, _ := doc["imports"].([]any)
	var found []string
	for _, x := range list {
		pattern, ok := x.(string)
		if !ok {
			return nil, fmt.Errorf("%s: imports has %v, which is no path", name, x)
		}
		if pattern = path.Clean(pattern); !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(name), pattern)
		}
		if !strings.HasPrefix(pattern, dir+"/") {
			return nil, fmt.Errorf("%s imports %s, which lies outside of %s and was not read; turn NRI on by hand",
				name, pattern, dir)
		}
		if !strings.Contains(pattern, "*") {
			if _, ok := files[pattern]; !ok {
				return nil, fmt.Errorf("%s imports %s, which is not there", name, pattern)
			}
			found = append(found, pattern)
			continue
		}
		t.globs = append(t.globs, pattern)
		for _, f := range slices.Sorted(maps.Keys(files)) {
			match, err := path.Match(pattern, f)
			if err != nil {
				return nil, fmt.Errorf("%s: imports has %q: %w", name, pattern, err)
			}
			if match {
				found = append(found, f)
			}
		}
	}
	return found, nil
}

func (t *tree) imports(file string) bool {
	return slices.ContainsFunc(t.globs, func(g string) bool {
		ok, err := path.Match(g, file)
		return ok && err == nil
	})
}

// table finds the one file that has the table.
func (t *tree) table(name []string) (file string, table map[string]any, err error) {
	for _, f := range slices.Sorted(maps.Keys(t.docs)) {
		found, ok := tableOf(t.docs[f], name)
		if !ok {
			continue
		}
		if file != "" {
			return "", nil, fmt.Errorf("both %s and %s have %s; leave it in one of them", file, f,
				strings.TrimSpace(headerLine(name)))
		}
		file, table = f, found
	}
	return file, table, nil
}

func (t *tree) onByDefault(o Options) bool {
	if major, known := majorOf(o.Version); known {
		return major >= 2
	}
	return t.version >= 3 // which only containerd 2 reads
}

func majorOf(version string) (int, bool) {
	first, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	n, err := strconv.Atoi(first)
	return n, err == nil
}

// names are the keys of a runtime's table; disableConnections is empty where there
// is no such key.
type names struct{ disable, disableConnections, request, registration string }

// wanted is what has to change in containerd's table.
func wanted(table map[string]any, k names, o Options, onByDefault bool) ([]setting, error) {
	var list []setting
	off, err := boolOf(table, k.disable, !onByDefault && !o.On)
	if err != nil {
		return nil, err
	}
	if off {
		list = append(list, setting{k.disable, false})
	}
	closed, err := boolOf(table, k.disableConnections, false)
	if err != nil {
		return nil, err
	}
	if closed || off {
		list = append(list, setting{k.disableConnections, false})
	}
	times, err := timeouts(table, k.request, k.registration, o.RequestTimeout)
	return append(list, times...), err
}

func boolOf(table map[string]any, key string, otherwise bool) (bool, error) {
	switch v := table[key].(type) {
	case nil:
		return otherwise, nil
	case bool:
		return v, nil
	default:
		return false, fmt.Errorf("%s is %v, must be true or false", key, v)
	}
}

// timeouts raises the time of a request, and that of the registration above it.
func timeouts(table map[string]any, request, registration string, least time.Duration) ([]setting, error) {
	if least == 0 {
		return nil, nil
	}
	now, err := durationOf(table, request, defaultRequest)
	if err != nil {
		return nil, err
	}
	if now >= least {
		return nil, nil
	}
	list := []setting{{request, least.String()}}
	whole, err := durationOf(table, registration, defaultRegistration)
	if err != nil {
		return nil, err
	}
	if whole <= least {
		list = append(list, setting{registration, (least + defaultRegistration - defaultRequest).String()})
	}
	return list, nil
}

func durationOf(table map[string]any, key string, otherwise time.Duration) (time.Duration, error) {
	switch v := table[key].(type) {
	case nil:
		return otherwise, nil
	case string:
		d, err := time.ParseDuration(v)
		if err != nil {
			return 0, fmt.Errorf("%s is %q, must be a duration such as 2s", key, v)
		}
		if d == 0 {
			return otherwise, nil
		}
		return d, nil
	default:
		return 0, fmt.Errorf("%s is %v, must be a duration such as \"2s\"", key, v)
	}
}
