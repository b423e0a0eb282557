package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// API is a client of the API server for one user. It is a few lines over net/http
// rather than Kubernetes' own client, so that exactly the intended requests are made
// and measured.
type API struct {
	base   string
	client *http.Client
}

// StatusError is a refusal of the API server.
type StatusError struct {
	Method, Path string
	Code         int
	Message      string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: %d: %s", e.Method, e.Path, e.Code, e.Message)
}

// Refused distinguishes the API server's refusal with this code from everything else.
func Refused(err error, code int) bool {
	var s *StatusError
	return errors.As(err, &s) && s.Code == code
}

func newAPI(address string, a *authority, user pair) (*API, error) {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	own, err := tls.X509KeyPair(user.cert, user.key)
	if err != nil {
		return nil, err
	}
	return &API{
		base: "https://" + address,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
			Certificates: []tls.Certificate{own}}}},
	}, nil
}

// requestLimit bounds a single request; a watch has none.
const requestLimit = 30 * time.Second

// Do makes one request. body and into may be nil; a body that is a patch is a merge
// patch.
func (a *API) Do(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	resp, err := a.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	if text, ok := into.(*string); ok {
		all, err := io.ReadAll(resp.Body)
		*text = string(all)
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

func (a *API) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	refusal := &StatusError{Method: method, Path: path, Code: resp.StatusCode, Message: string(text)}
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		refusal.Message = status.Message
	}
	return nil, refusal
}

// Get reads an object or a list.
func (a *API) Get(ctx context.Context, path string, into any) error {
	return a.Do(ctx, http.MethodGet, path, nil, into)
}

// Create posts an object to its collection.
func (a *API) Create(ctx context.Context, path string, object, into any) error {
	return a.Do(ctx, http.MethodPost, path, object, into)
}

// Patch merges into an object; a nil removes.
func (a *API) Patch(ctx context.Context, path string, patch any) error {
	return a.Do(ctx, http.MethodPatch, path, patch, nil)
}

// Delete requests an object's deletion; a missing one is no error.
func (a *API) Delete(ctx context.Context, path string) error {
	err := a.Do(ctx, http.MethodDelete, path, nil, nil)
	if Refused(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// Watch calls see for every change of a collection, until it returns true or the
// context ends.
func (a *API) Watch(ctx context.Context, path string, see func(kind string,
	object json.RawMessage) (enough bool, err error)) error {
	resp, err := a.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := in.Decode(&event); err != nil {
			return errors.Join(fmt.Errorf("watch %s: %w", path, err), ctx.Err())
		}
		enough, err := see(event.Type, event.Object)
		if err != nil || enough {
			return err
		}
	}
}

// Until polls until ask returns nil, for conditions that no event reports. The last
// error is part of its own.
func Until(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // the context's end says less than what was wrong before it
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still after %v: %w", limit, last)
		case <-tick.C:
		}
	}
}
