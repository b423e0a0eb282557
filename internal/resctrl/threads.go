package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ThreadsIn lists the threads in a cgroup of this hierarchy and in those below it. Of a cgroup that is gone there are
// none.
func ThreadsIn(hierarchy string, v1 bool) func(cgroup string) ([]int, error) {
	file := "cgroup.threads"
	if v1 {
		file = "tasks"
	}
	return func(cgroup string) (list []int, err error) {
		if cgroup = strings.Trim(cgroup, "/"); !filepath.IsLocal(cgroup) {
			return nil, fmt.Errorf("%q is no container's cgroup", cgroup)
		}
		err = filepath.WalkDir(filepath.Join(hierarchy, cgroup), func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				var text []byte
				if text, err = os.ReadFile(filepath.Join(name, file)); err == nil {
					var some []int
					some, err = ids(string(text))
					list = append(list, some...)
				}
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
				return nil
			}
			return err
		})
		return list, err
	}
}

// ids are the numbers of a file that has one a line.
func ids(text string) (list []int, err error) {
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}
