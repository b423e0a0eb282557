package enablenri

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

const crioDrop = "99-quietcore-nri.conf"

var crioTable = []string{"crio", "nri"}

// lookCRIO: crio.conf first, then every file of crio.conf.d by name; a later one
// wins key by key. So it is always one small file of our own.
func lookCRIO(files Files, o Options) (*Plan, error) {
	folder := path.Join(o.Dir, "crio.conf.d")
	drop := path.Join(folder, crioDrop)
	order := []string{path.Join(o.Dir, "crio.conf")}
	for _, f := range slices.Sorted(maps.Keys(files)) {
		if path.Dir(f) == folder {
			order = append(order, f)
		}
	}
	effective, last := map[string]any{}, map[string]string{}
	for _, f := range order {
		doc, err := parse(f, files[f])
		if err != nil {
			return nil, err
		}
		table, _ := tableOf(doc, crioTable)
		for k, v := range table {
			effective[k], last[k] = v, f
		}
	}
	settings, err := wantedCRIO(effective, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Dir, err)
	}
	if len(settings) == 0 {
		return nil, nil
	}
	for _, s := range settings {
		if f := last[s.key]; f > drop {
			return nil, fmt.Errorf("%s has %s = %v and is read after %s; set it to %s there", f, s.key,
				effective[s.key], drop, s.text())
		}
	}
	changed, err := set(drop, files[drop], crioTable, settings)
	if err != nil {
		return nil, err
	}
	return &Plan{Path: drop, Old: files[drop], New: changed}, nil
}

func wantedCRIO(table map[string]any, o Options) ([]setting, error) {
	var list []setting
	on, err := boolOf(table, "enable_nri", o.On || crioHasItOn(o.Version))
	if err != nil {
		return nil, err
	}
	if !on {
		list = append(list, setting{"enable_nri", true})
	}
	times, err := timeouts(table, "nri_plugin_request_timeout", "nri_plugin_registration_timeout", o.RequestTimeout)
	return append(list, times...), err
}

// crioHasItOn: by default from 1.30 on.
func crioHasItOn(version string) bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	return err == nil && err2 == nil && (x > 1 || x == 1 && y >= 30)
}
