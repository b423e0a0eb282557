package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// publication is a release, where it goes, and who vouches for it.
type publication struct {
	pusher
	signers   []signer
	origin    []byte // its provenance
	statement []byte // that all its files came about in this way
	out       string // the folder for signatures of files
	hub       string // the file for Artifact Hub
	hubID     string
}

// publishOptions are what the caller of publish decides.
type publishOptions struct {
	source, dist, to, hubID string
	tools                   string // the folder with cosign and helm; empty: they are compiled
	by                      builder
	signers                 []signer // without a program
}

func parsePublish(args []string) (publishOptions, error) {
	flags, source := flagsOf("publish")
	var o publishOptions
	flags.StringVar(&o.dist, "dist", "../../dist", "the release")
	flags.StringVar(&o.to, "o", "../../dist-signatures", "the folder for the provenance and signatures of files")
	o.by.flags(flags)
	flags.StringVar(&o.hubID, "artifacthub-id", "", "Artifact Hub's name of the chart's repository")
	flags.StringVar(&o.tools, "tools", "", toolsFlag)
	keyless := flags.Bool("keyless", false, "sign with the identity that the surroundings give a workflow")
	identity := flags.String("identity", "", "which that has to be, a URI")
	issuer := flags.String("issuer", "", "and who says so, a URL")
	key := flags.String("key", "", "sign by this key, too: a file or what else cosign takes, such as env://NAME")
	public := flags.String("public-key", "", "the file that verifies it")
	if err := parse(flags, args); err != nil {
		return o, err
	}
	o.source = *source
	if *keyless {
		if *identity == "" || *issuer == "" {
			return o, usage("-keyless takes -identity and -issuer, by which it is verified")
		}
		o.signers = append(o.signers, signer{verify: []string{"--certificate-identity", *identity,
			"--certificate-oidc-issuer", *issuer}})
	}
	if *key != "" {
		if *public == "" {
			return o, usage("-key takes -public-key, by which it is verified")
		}
		o.signers = append(o.signers, signer{sign: []string{"--key", *key}, verify: []string{"--key", *public}})
	}
	if len(o.signers) == 0 {
		return o, usage("say who signs: -keyless, -key or both")
	}
	return o, nil
}

// publishCommand pushes, signs and attests a release that was built with -registry, and verifies the result.
func publishCommand(ctx context.Context, args []string, out io.Writer) error {
	o, err := parsePublish(args)
	if err != nil {
		return err
	}
	if err := Check(ctx, o.dist, Lacks{}, out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "quietcore-publish-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	tools, err := installTools(ctx, work, o.tools)
	if err != nil {
		return err
	}
	p, err := newPublication(ctx, o.dist, tools, o.by)
	if err != nil {
		return err
	}
	for _, s := range o.signers {
		s.program, s.http = tools["cosign"], p.http
		p.signers = append(p.signers, s)
	}
	p.out, p.hub, p.hubID = o.to, filepath.Join(o.source, "charts", hubFile), o.hubID
	list, err := p.publish(ctx)
	if err != nil {
		return err
	}
	if err := p.verify(ctx, list); err != nil {
		return err
	}
	for _, a := range list {
		fmt.Fprintf(out, "%s %s\n", a.digest.DigestStr(), a.tag)
	}
	return nil
}

func newPublication(ctx context.Context, dist string, tools map[string]string, by builder) (publication, error) {
	said, err := whatItSays(ctx, dist)
	if err != nil {
		return publication{}, err
	}
	p := publication{}
	if p.pusher, err = newPusher(dist, said.Version, tools["helm"]); err != nil {
		return p, err
	}
	if p.origin, err = provenanceOf(dist, said, p.registry, by); err != nil {
		return p, err
	}
	p.statement, err = statementOf(dist, p.origin)
	return p, err
}

// publish pushes everything and has every signer vouch for it.
func (p publication) publish(ctx context.Context) ([]artefact, error) {
	if err := os.MkdirAll(p.out, 0o755); err != nil {
		return nil, err
	}
	statement := filepath.Join(p.out, statementName)
	if err := os.WriteFile(statement, p.statement, 0o644); err != nil {
		return nil, err
	}
	list, err := p.push(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.pushHub(ctx, p.hub, p.hubID); err != nil {
		return nil, fmt.Errorf("push %s: %w", hubFile, err)
	}
	for i, s := range p.signers {
		if err := s.seal(ctx, list, p.origin); err != nil {
			return nil, err
		}
		if err := s.sealFile(ctx, filepath.Join(p.dist, sumsName), p.bundle(sumsName, i)); err != nil {
			return nil, err
		}
		if err := s.sealStatement(ctx, statement, p.bundle(provenanceName, i)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// bundle is the signature of a file by a signer. All are attached to one release, so each has its own name.
func (p publication) bundle(name string, i int) string {
	if i > 0 {
		name += ".key"
	}
	return filepath.Join(p.out, name+bundleSuffix)
}

// verify asks as a user would: by tags, for every signer, for what the chart would run, and for the files.
func (p publication) verify(ctx context.Context, list []artefact) error {
	for i, s := range p.signers {
		if err := s.check(ctx, list, p.origin); err != nil {
			return err
		}
		if err := p.verifyFiles(ctx, s, i); err != nil {
			return err
		}
	}
	return p.installs(ctx, list)
}

// verifyFiles wants the checksums signed, the files to have them, and the signed provenance to be of these files.
func (p publication) verifyFiles(ctx context.Context, s signer, i int) error {
	sums := filepath.Join(p.dist, sumsName)
	if err := s.checkFile(ctx, sums, p.bundle(sumsName, i)); err != nil {
		return err
	}
	if err := checkSums(p.dist); err != nil {
		return err
	}
	if err := s.checkStatement(ctx, sums, p.bundle(provenanceName, i)); err != nil {
		return err
	}
	signed, err := statementIn(p.bundle(provenanceName, i))
	if err != nil {
		return err
	}
	if !bytes.Equal(signed, p.statement) {
		return fmt.Errorf("%s is signed of something else than these files", p.bundle(provenanceName, i))
	}
	return nil
}
