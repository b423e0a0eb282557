package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
)

// ClaimsFile is the name of the file in which kubelet keeps the claims that it has prepared, or is about to. It is in
// the directory of cpu_manager_state.
const ClaimsFile = "dra_manager_state"

const (
	claimsGroup = "checkpoint.dra.kubelet.k8s.io/"
	maxClaims   = 16 << 20 // bytes
)

// ReadClaims reads the UIDs of the claims that kubelet knows of. It has each of them on disk before a driver is asked
// to prepare it, and until after it is unprepared.
func ReadClaims(path string) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxClaims+1))
	if err != nil {
		return nil, err
	}
	uids, err := parseClaims(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return uids, nil
}

// parseClaims believes nothing but a whole file of a known kind: a claim that is not in it loses its CPUs.
func parseClaims(text []byte) (map[string]bool, error) {
	if len(text) > maxClaims {
		return nil, fmt.Errorf("it is larger than %d bytes", maxClaims)
	}
	var file struct {
		Data     string
		Checksum *uint32
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Checksum == nil || *file.Checksum != crc32.ChecksumIEEE([]byte(file.Data)) {
		return nil, errors.New("its checksum is not that of its data")
	}
	var data struct {
		Kind, APIVersion   string
		ClaimInfoStateList []struct{ ClaimUID string }
	}
	if err := json.Unmarshal([]byte(file.Data), &data); err != nil {
		return nil, err
	}
	if data.Kind != "DRACheckpoint" || !strings.HasPrefix(data.APIVersion, claimsGroup) {
		return nil, fmt.Errorf("it is a %.70q of %.70q, not a DRACheckpoint", data.Kind, data.APIVersion)
	}
	uids := map[string]bool{}
	for _, c := range data.ClaimInfoStateList {
		if c.ClaimUID == "" {
			return nil, errors.New("a claim in it has no UID")
		}
		uids[c.ClaimUID] = true
	}
	return uids, nil
}
