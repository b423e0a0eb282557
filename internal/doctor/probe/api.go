package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/doctor"
	"github.com/quietcore/quietcore/internal/kube"
)

func askAPI(ctx context.Context, c *config.Config, version string) doctor.APIFacts {
	if !kube.Available(c.Kubernetes.Kubeconfig) {
		return doctor.APIFacts{}
	}
	a := doctor.APIFacts{Asked: true}
	name := c.NodeName()
	if name == "" {
		name = "unknown" // the client wants one; it is not asked about
	}
	reached, err := kube.New(kube.Options{Kubeconfig: c.Kubernetes.Kubeconfig, Node: name, Version: version})
	if err != nil {
		a.Err = err.Error()
		return a
	}
	server, err := newServer(reached)
	if err == nil {
		err = server.examine(ctx, c, &a)
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// server is an API server that is asked a few questions. The clients of all of its
// groups would cost the daemon's binary more than everything else.
type server struct {
	client *http.Client
	base   *url.URL
}

func newServer(reached *kube.Client) (*server, error) {
	address, err := reached.REST()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(address)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(address)
	return &server{client, base}, err
}

// ask sends body (nil: a GET) and reads the answer into out; the status is that of a
// good answer, 403 or 404.
func (s *server) ask(ctx context.Context, path string, query url.Values, body, out any) (status int, err error) {
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		if text, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	to := s.base.JoinPath(path)
	to.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	const most = 4 << 20
	answer, err := io.ReadAll(io.LimitReader(resp.Body, most))
	switch {
	case err != nil:
		return 0, err
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusNotFound:
		return resp.StatusCode, nil
	case resp.StatusCode/100 != 2:
		return 0, fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return resp.StatusCode, json.Unmarshal(answer, out)
}

func (s *server) examine(ctx context.Context, c *config.Config, a *doctor.APIFacts) error {
	for _, r := range doctor.Rights(c) {
		resource, sub, _ := strings.Cut(r.Resource, "/")
		review := authorization.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Spec: authorization.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorization.ResourceAttributes{Verb: r.Verb, Group: r.Group, Resource: resource,
					Subresource: sub}},
		}
		status, err := s.ask(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, review, &review)
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("the API server does not list the permissions of the credentials: status %d", status)
		}
		if err != nil {
			return err
		}
		a.Checked++
		if !review.Status.Allowed {
			a.Denied = append(a.Denied, r)
		}
	}
	if name := c.NodeName(); name != "" {
		var nodes metav1.PartialObjectMetadataList
		status, err := s.ask(ctx, "/api/v1/nodes", url.Values{"fieldSelector": {"metadata.name=" + name},
			"limit": {"1"}}, nil, &nodes)
		if err != nil {
			return err
		}
		a.NoNode = status == http.StatusOK && len(nodes.Items) == 0
	}
	if c.Kubernetes.Topology.Enabled {
		var group metav1.APIResourceList
		status, err := s.ask(ctx, "/apis/topology.node.k8s.io/v1alpha2", nil, nil, &group)
		if err != nil {
			return err
		}
		a.NoCRD = status == http.StatusNotFound
	}
	return nil
}
