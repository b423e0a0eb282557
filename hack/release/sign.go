package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const cosignProgram = "github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3"

const toolsFlag = "take cosign and helm of this folder, instead of compiling them"

// installTools compiles cosign and Helm, unless a folder has them.
func installTools(ctx context.Context, dir, given string) (map[string]string, error) {
	if given == "" {
		return install(ctx, dir, cosignProgram, helmProgram)
	}
	tools := map[string]string{}
	for _, name := range []string{"cosign", "helm"} {
		program, err := filepath.Abs(filepath.Join(given, name))
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(program); err != nil {
			return nil, err
		}
		tools[name] = program
	}
	return tools, nil
}

// Kinds of attestations, as cosign calls them.
const (
	kindProvenance = "slsaprovenance1"
	kindBill       = "spdxjson"
)

// bundleSuffix is that of a signature in a file, and provenanceName the name before it of that of the provenance.
const (
	bundleSuffix   = ".sigstore.json"
	provenanceName = "provenance"
)

// signer is cosign with what it signs and verifies by.
type signer struct {
	program string
	sign    []string // such as --key FILE; nothing: the identity that the surroundings give
	verify  []string // such as --key FILE, or --certificate-identity
	http    bool     // the registry speaks plain text
	offline string   // a folder with the files that name no log and no authority; empty: the public ones
}

// Files of a signer that asks nobody.
const (
	noServices = "signing-config.json"
	noRoot     = "trusted-root.json"
)

// verification are the commands of docs/releasing.md: what anybody runs who got a reference, in that order.
func verification() [][]string {
	return [][]string{
		{"verify"},
		{"verify-attestation", "--type", kindProvenance},
		{"verify-attestation", "--type", kindBill},
	}
}

func (s signer) flags(of []string) []string {
	flags := append([]string{}, of...)
	if s.http {
		flags = append(flags, "--allow-http-registry")
	}
	return flags
}

func (s signer) signFlags() []string {
	flags := append(s.flags(s.sign), "--yes")
	if s.offline != "" {
		flags = append(flags, "--signing-config", filepath.Join(s.offline, noServices),
			"--trusted-root", filepath.Join(s.offline, noRoot))
	}
	return flags
}

func (s signer) verifyFlags() []string {
	flags := s.flags(s.verify)
	if s.offline != "" {
		flags = append(flags, "--insecure-ignore-tlog")
	}
	return flags
}

func (s signer) run(ctx context.Context, args ...string) (string, error) {
	// No password is asked for: a key without one, or COSIGN_PASSWORD.
	var env []string
	if os.Getenv("COSIGN_PASSWORD") == "" {
		env = []string{"COSIGN_PASSWORD="}
	}
	return output(ctx, "", env, s.program, args...)
}

// seal signs what lies in the registry and attests provenance and bills of materials. The platforms' images are signed,
// too, since somebody may ask for one of them alone.
func (s signer) seal(ctx context.Context, list []artefact, origin []byte) error {
	work, err := os.MkdirTemp("", "quietcore-seal-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	from := filepath.Join(work, "provenance.json")
	if err := os.WriteFile(from, origin, 0o600); err != nil {
		return err
	}
	for _, a := range list {
		sign := append([]string{"sign", "--recursive"}, s.signFlags()...)
		if _, err := s.run(ctx, append(sign, a.digest.Name())...); err != nil {
			return err
		}
		if err := s.attest(ctx, a.digest.Name(), kindProvenance, from); err != nil {
			return err
		}
		if a.program == "" {
			continue
		}
		images, err := platforms(ctx, a)
		if err != nil {
			return err
		}
		for platform, img := range images {
			bill, err := billOf(img, a.program)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", a.program, platform, err)
			}
			digest, err := img.Digest()
			if err != nil {
				return err
			}
			file := filepath.Join(work, "bill.spdx.json")
			if err := os.WriteFile(file, bill, 0o600); err != nil {
				return err
			}
			// Of the index as well, by which clusters ask for it.
			for _, of := range []string{a.digest.Name(), a.tag.Digest(digest.String()).Name()} {
				if err := s.attest(ctx, of, kindBill, file); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s signer) attest(ctx context.Context, reference, kind, predicate string) error {
	args := append([]string{"attest", "--type", kind, "--predicate", predicate}, s.signFlags()...)
	_, err := s.run(ctx, append(args, reference)...)
	return err
}

// sealFile signs a file, and writes the signature into another.
func (s signer) sealFile(ctx context.Context, file, bundle string) error {
	s.http = false
	args := append([]string{"sign-blob", "--bundle", bundle}, s.signFlags()...)
	_, err := s.run(ctx, append(args, file)...)
	return err
}

// checkFile verifies that.
func (s signer) checkFile(ctx context.Context, file, bundle string) error {
	s.http = false
	args := append([]string{"verify-blob", "--bundle", bundle}, s.verifyFlags()...)
	_, err := s.run(ctx, append(args, file)...)
	return err
}

// sealStatement signs a statement of files as it is.
func (s signer) sealStatement(ctx context.Context, file, bundle string) error {
	s.http = false
	args := append([]string{"attest-blob", "--type", kindProvenance, "--statement", file, "--bundle", bundle},
		s.signFlags()...)
	_, err := s.run(ctx, args...)
	return err
}

// checkStatement verifies that it is signed and is of a file.
func (s signer) checkStatement(ctx context.Context, file, bundle string) error {
	s.http = false
	args := append([]string{"verify-blob-attestation", "--type", kindProvenance, "--bundle", bundle},
		s.verifyFlags()...)
	_, err := s.run(ctx, append(args, file)...)
	return err
}

// statementIn is what is signed in a bundle.
func statementIn(bundle string) ([]byte, error) {
	text, err := os.ReadFile(bundle)
	if err != nil {
		return nil, err
	}
	var b struct {
		DSSEEnvelope struct{ Payload []byte } `json:"dsseEnvelope"`
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(bundle), err)
	}
	if len(b.DSSEEnvelope.Payload) == 0 {
		return nil, fmt.Errorf("%s signs no statement", filepath.Base(bundle))
	}
	return b.DSSEEnvelope.Payload, nil
}

// check verifies artefacts by their tags, as the page says, and reads what was attested: a signature under a wrong
// statement is none.
func (s signer) check(ctx context.Context, list []artefact, origin []byte) error {
	for _, a := range list {
		for _, words := range verification() {
			kind := words[len(words)-1]
			if a.program == "" && kind == kindBill {
				continue // a chart is made of itself
			}
			out, err := s.run(ctx, append(append(words, s.verifyFlags()...), a.tag.Name())...)
			if err == nil && kind != words[0] {
				err = s.read(ctx, a, kind, out, origin)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", a.tag, err)
			}
		}
	}
	return nil
}

// read judges the statements that were verified.
func (s signer) read(ctx context.Context, a artefact, kind, envelopes string, origin []byte) error {
	statements, err := payloads(envelopes)
	if err != nil {
		return err
	}
	if kind == kindProvenance {
		var errs []error
		for _, statement := range statements {
			errs = append(errs, checkProvenance(statement, a.digest.DigestStr(), origin))
		}
		return errors.Join(errs...)
	}
	bills := map[string]any{}
	for _, statement := range statements {
		var has struct {
			Predicate map[string]any `json:"predicate"`
		}
		if err := json.Unmarshal(statement, &has); err != nil {
			return err
		}
		name, _ := has.Predicate["documentNamespace"].(string)
		bills[name] = has.Predicate
	}
	images, err := platforms(ctx, a)
	if err != nil {
		return err
	}
	for platform, img := range images {
		text, err := billOf(img, a.program)
		if err != nil {
			return err
		}
		var bill map[string]any
		if err := json.Unmarshal(text, &bill); err != nil {
			return err
		}
		name, _ := bill["documentNamespace"].(string)
		if err := differ("the bill of materials attested for "+platform, bills[name], bill); err != nil {
			return err
		}
	}
	return nil
}

// payloads are the statements in what cosign prints of what it verified: an envelope a line.
func payloads(envelopes string) ([][]byte, error) {
	var list [][]byte
	for line := range strings.Lines(envelopes) {
		var envelope struct{ Payload string }
		if err := json.Unmarshal([]byte(line), &envelope); err != nil {
			return nil, fmt.Errorf("what cosign prints: %w", err)
		}
		statement, err := base64.StdEncoding.DecodeString(envelope.Payload)
		if err != nil {
			return nil, fmt.Errorf("what cosign prints: %w", err)
		}
		list = append(list, statement)
	}
	if len(list) == 0 {
		return nil, errors.New("cosign prints no statement")
	}
	return list, nil
}
