package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// trustCommand plays a publication on loopback: a registry of its own, a key of its own, no log. Then it does what an
// attacker could who may write to the registry, and wants each verification to fail.
func trustCommand(ctx context.Context, args []string, out io.Writer) error {
	flags, source := flagsOf("trust")
	r := Release{}
	flags.StringVar(&r.Version, "version", "v0.0.0-trust", "the version")
	flags.StringVar(&r.Commit, "commit", "HEAD", "what is built")
	kubeconfig := flags.String("kubeconfig", "",
		"install it from the registry into this cluster, too, and uninstall it")
	given := flags.String("tools", "", toolsFlag)
	r.Lacks.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "quietcore-trust-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	s, err := openStore()
	if err != nil {
		return err
	}
	defer s.stop()
	t := trial{store: s, out: out, from: time.Now()}
	tools, err := installTools(ctx, filepath.Join(work, "tools"), *given)
	if err != nil {
		return err
	}
	t.say("cosign and Helm are there")
	r.Source, r.Registry = *source, s.address+"/project"
	dist := filepath.Join(work, "dist")
	if _, err := r.Build(ctx, dist); err != nil {
		return err
	}
	if err := Check(ctx, dist, r.Lacks, io.Discard); err != nil {
		return err
	}
	t.say("%s is built for %s", r.Version, r.Registry)
	if t.publication, err = newPublication(ctx, dist, tools, builder{id: byHand, invocation: "trust"}); err != nil {
		return err
	}
	t.publication.out, t.hub = filepath.Join(work, "signatures"), filepath.Join(*source, "charts", hubFile)
	for _, name := range []string{"first", "second"} { // as an identity and a key vouch for the same
		by, err := localSigner(ctx, tools["cosign"], filepath.Join(work, name))
		if err != nil {
			return err
		}
		t.signers = append(t.signers, by)
	}
	if t.list, err = t.publish(ctx); err != nil {
		return err
	}
	t.say("%d artefacts are pushed, signed and attested", len(t.list))
	if err := t.verify(ctx, t.list); err != nil {
		return err
	}
	t.say("all of them are verified, and the chart in the registry runs these images")
	if *kubeconfig != "" {
		if err := t.installsIn(ctx, *kubeconfig, t.list); err != nil {
			return err
		}
		t.say("it was installed from the registry and runs these images")
	}
	other, err := localSigner(ctx, tools["cosign"], filepath.Join(work, "other"))
	if err != nil {
		return err
	}
	return t.attacked(ctx, other)
}

// store is a registry on loopback that keeps everything in memory, and serves something else where it is told to.
type store struct {
	address string
	stop    func()
	mutex   sync.Mutex
	instead map[string]string // a digest, and that whose content is served for it; empty: its own with a byte changed
}

func openStore() (*store, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &store{address: l.Addr().String(), instead: map[string]string{}}
	honest := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			dir, digest := path.Split(r.URL.Path)
			s.mutex.Lock()
			other, lies := s.instead[digest]
			s.mutex.Unlock()
			if lies && other == "" {
				w = &changed{ResponseWriter: w}
			} else if lies && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
				r.URL.Path = dir + other
			}
			honest.ServeHTTP(w, r)
		})}
	s.stop = func() { _ = server.Close() }
	go func() { _ = server.Serve(l) }() // ends with Close
	return s, nil
}

// changed is an answer in which one byte is another: that of gzip's header which says what system packed it, so that
// what is packed stays the same, and whoever compares no digests takes it.
type changed struct {
	http.ResponseWriter
	seen int
}

func (c *changed) Write(p []byte) (int, error) {
	const system = 9
	if at := system - c.seen; at >= 0 && at < len(p) {
		p = slices.Clone(p)
		p[at] ^= 1
	}
	c.seen += len(p)
	return c.ResponseWriter.Write(p)
}

// serve has the content of another digest served for one, until undo.
func (s *store) serve(digest, other string) (undo func() error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.instead[digest] = other
	return func() error {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		delete(s.instead, digest)
		return nil
	}
}

// localSigner is cosign with a new key, and no service that it could ask.
func localSigner(ctx context.Context, cosign, dir string) (signer, error) {
	s := signer{program: cosign, http: true, offline: dir,
		sign:   []string{"--key", filepath.Join(dir, "cosign.key")},
		verify: []string{"--key", filepath.Join(dir, "cosign.pub")}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return s, err
	}
	if _, err := s.run(ctx, "generate-key-pair", "--output-key-prefix", filepath.Join(dir, "cosign")); err != nil {
		return s, err
	}
	for file, kind := range map[string]string{
		noServices: "signingconfig.v0.2+json", noRoot: "trustedroot+json;version=0.1",
	} {
		text := `{"mediaType":"application/vnd.dev.sigstore.` + kind + `"}`
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return s, err
		}
	}
	return s, nil
}

// trial is a publication on loopback, and what is done to it.
type trial struct {
	publication
	list  []artefact
	store *store
	out   io.Writer
	from  time.Time
}

func (t *trial) say(format string, args ...any) {
	fmt.Fprintf(t.out, "%4.0f s  %s\n", time.Since(t.from).Seconds(), fmt.Sprintf(format, args...))
}
