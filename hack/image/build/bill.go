package build

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Library is what the standard library is called among the parts of a binary.
const Library = "Go's standard library"

// noAssertion is SPDX's word for what is not known.
const noAssertion = "NOASSERTION"

// BillName is the bill of materials in the image of a program.
func BillName(p Program) string { return "usr/share/sbom/" + p.Name + ".spdx.json" }

// bill is the software bill of materials in SPDX 2.3, from what the linker wrote
// into the binary.
func (s *Image) bill(b Binary) ([]byte, error) {
	info, err := buildinfo.ReadFile(b.Path)
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	pack := func(id, name, version string) object {
		return object{
			"SPDXID": id, "name": name, "versionInfo": version, "downloadLocation": noAssertion,
			"filesAnalyzed":    false,
			"licenseConcluded": noAssertion, "licenseDeclared": noAssertion, "copyrightText": noAssertion,
			"externalRefs": []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
				"referenceLocator": "pkg:golang/" + name + "@" + version}},
		}
	}
	main := pack("SPDXRef-main", info.Main.Path, s.Source.Version)
	main["licenseDeclared"] = license
	under := map[string]string{}
	for _, p := range s.Parts {
		under[p.Name] = strings.Join(p.Licences, " AND ")
	}
	library := pack("SPDXRef-go", "stdlib", goVersion(info))
	if l := under[Library]; l != "" {
		library["licenseDeclared"] = l
	}
	packages := []object{main, library}
	relations := []object{
		{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-main"},
		{"spdxElementId": "SPDXRef-main", "relationshipType": "DEPENDS_ON", "relatedSpdxElement": "SPDXRef-go"},
	}
	for i, m := range Modules(info) {
		id := fmt.Sprintf("SPDXRef-%d", i)
		module := pack(id, m.Path, m.Version)
		if l := under[m.Path]; l != "" {
			module["licenseDeclared"] = l
		}
		packages = append(packages, module)
		relations = append(relations, object{"spdxElementId": "SPDXRef-main", "relationshipType": "DEPENDS_ON",
			"relatedSpdxElement": id})
	}
	return json.MarshalIndent(object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
		"name": s.Program.Name + "-" + s.Source.Version + "-" + strings.ReplaceAll(b.Platform, "/", "-"),
		"documentNamespace": "https://quietcore.dev/spdx/" + s.Program.Name + "/" + s.Source.Version + "/" +
			b.Platform,
		"creationInfo": object{"created": s.Source.Date.Format(time.RFC3339),
			"creators": []string{"Tool: quietcore-hack-image"}},
		"packages": packages, "relationships": relations,
	}, "", " ")
}

// CheckBill compares a bill of materials with what the linker wrote into the binary that it is about:
// each module in the version that was linked, nothing else, and a licence for each.
func CheckBill(text []byte, info *debug.BuildInfo, version string) error {
	var bill struct {
		SPDXVersion string
		Packages    []struct{ Name, VersionInfo, LicenseDeclared string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		return fmt.Errorf("the bill of materials: %w", err)
	}
	if bill.SPDXVersion != "SPDX-2.3" {
		return fmt.Errorf("the bill of materials is of %q, want SPDX-2.3", bill.SPDXVersion)
	}
	lacks := map[string]bool{info.Main.Path + " " + version: true, "stdlib " + goVersion(info): true}
	for _, m := range Modules(info) {
		lacks[m.Path+" "+m.Version] = true
	}
	var errs []error
	for _, p := range bill.Packages {
		name := p.Name + " " + p.VersionInfo
		if !lacks[name] {
			errs = append(errs, fmt.Errorf("the bill of materials has %s, which is not in the binary", name))
		}
		if p.LicenseDeclared == "" || p.LicenseDeclared == noAssertion {
			errs = append(errs, fmt.Errorf("the bill of materials has no licence of %s", name))
		}
		delete(lacks, name)
	}
	for _, name := range slices.Sorted(maps.Keys(lacks)) {
		errs = append(errs, fmt.Errorf("the bill of materials lacks %s, which is in the binary", name))
	}
	return errors.Join(errs...)
}

func goVersion(info *debug.BuildInfo) string { return strings.TrimPrefix(info.GoVersion, "go") }

// Modules lists what is in a binary, as its linker wrote it down, but modules of this repository.
func Modules(info *debug.BuildInfo) []*debug.Module {
	list := []*debug.Module{}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if strings.HasPrefix(m.Path, "..") {
			continue // another module of this repository
		}
		list = append(list, m)
	}
	return list
}
