package nrt

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quietcore/quietcore/cpuset"
)

const (
	nodeDir = "devices/system/node"
	maxFile = 4 << 10
)

// ReadHugepages reads the bytes of huge pages of every NUMA node, by node ID and
// resource name such as hugepages-2Mi. fsys is /sys. It skips what cannot be read.
func ReadHugepages(fsys fs.FS) Amounts {
	all := Amounts{}
	files, err := fs.Glob(fsys, nodeDir+"/node*/hugepages/hugepages-*kB/nr_hugepages")
	if err != nil {
		return all
	}
	for _, file := range files {
		sizeDir := path.Dir(file)
		node, okNode := number(path.Base(path.Dir(path.Dir(sizeDir))), "node", "", cpuset.MaxCPUs-1)
		kiB, okSize := number(path.Base(sizeDir), "hugepages-", "kB", 1<<30)
		text, err := readSmall(fsys, file)
		if err != nil || !okNode || !okSize {
			continue
		}
		count, ok := number(strings.TrimSpace(text), "", "", 1<<40)
		if !ok || count > (1<<62)/(kiB*1024) {
			continue
		}
		if all[node] == nil {
			all[node] = map[string]int64{}
		}
		all[node][hugepages+resource.NewQuantity(int64(kiB)*1024,
			resource.BinarySI).String()] = int64(count) * int64(kiB) * 1024
	}
	return all
}

// number parses the decimal number between a prefix and a suffix: at least 1 for sizes,
// 0 for the rest.
func number(text, prefix, suffix string, most int) (int, bool) {
	text, okPrefix := strings.CutPrefix(text, prefix)
	text, okSuffix := strings.CutSuffix(text, suffix)
	n, err := strconv.ParseUint(text, 10, 62)
	if !okPrefix || !okSuffix || err != nil || n > uint64(most) || suffix != "" && n == 0 {
		return 0, false
	}
	return int(n), true
}

func readSmall(fsys fs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxFile)
	}
	return string(text), err
}
