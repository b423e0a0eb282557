package otlp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/incidents"
)

const (
	// batch is how many records a request has, patience how long it may take, tries how often it is sent.
	batch, patience, tries = 200, 30 * time.Second, 5
	// maxSaid bounds what is read of an answer.
	maxSaid = 64 << 10
	// logsPath is where OTLP/HTTP takes logs, below its base address.
	logsPath = "/v1/logs"
)

// Push sends records to a server of OTLP/HTTP as protobuf, some hundred in a request.
type Push struct {
	ctx     context.Context // of the command that pushes
	client  *http.Client
	to      *url.URL
	headers http.Header
	after   func(time.Duration) <-chan time.Time

	logs     []*logspb.ResourceLogs
	n        int
	node     string // of the last record
	rejected int64
	why      string // the server's words
}

// NewPush is for the base address of a server, such as http://localhost:4318. As for other exporters, headers come
// from OTEL_EXPORTER_OTLP_HEADERS and a file with the certificates of who may sign the server's from
// OTEL_EXPORTER_OTLP_CERTIFICATE, or from what is said of logs alone (OTEL_EXPORTER_OTLP_LOGS_…).
func NewPush(ctx context.Context, address string, environment func(string) string) (*Push, error) {
	to, err := url.Parse(address)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return nil, cli.Usage("%q is not the address of an OTLP/HTTP server, such as http://localhost:4318", address)
	}
	if !strings.HasSuffix(to.Path, logsPath) {
		to = to.JoinPath(logsPath)
	}
	said := func(what string) string {
		return cmp.Or(environment("OTEL_EXPORTER_OTLP_LOGS_"+what), environment("OTEL_EXPORTER_OTLP_"+what))
	}
	headers, err := headersOf(said("HEADERS"))
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if file := said("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s has no certificate in PEM", file)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &Push{ctx: ctx, to: to, headers: headers, after: time.After, client: &http.Client{Transport: transport,
		Timeout: patience,
		// The headers have passwords, which are for the server that was named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// headersOf reads what the environment says: KEY=VALUE,…, in which a value is escaped as in an address.
func headersOf(text string) (http.Header, error) {
	headers := http.Header{}
	for i, pair := range strings.Split(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, escaped, is := strings.Cut(pair, "=")
		v, err := url.PathUnescape(strings.TrimSpace(escaped))
		if key = strings.TrimSpace(key); !is || err != nil || key == "" {
			return nil, cli.Usage("part %d of OTEL_EXPORTER_OTLP_HEADERS is not KEY=VALUE, the value escaped as in an "+
				"address", i+1) // and may be a password
		}
		headers.Set(key, v)
	}
	return headers, nil
}

// Write adds an incident, and sends what there is when it is enough for a request.
func (p *Push) Write(i *incidents.Incident) error {
	record := recordOf(i)
	if p.n == 0 || i.Node != p.node {
		p.logs, p.node = append(p.logs, logsOf(i.Node)), i.Node
	}
	scope := p.logs[len(p.logs)-1].ScopeLogs[0]
	scope.LogRecords = append(scope.LogRecords, record)
	if p.n++; p.n < batch {
		return nil
	}
	return p.send()
}

// Close sends the rest. What the server refused of what it took is an error about a part of the work.
func (p *Push) Close() error {
	if p.n > 0 {
		if err := p.send(); err != nil {
			return err
		}
	}
	if p.rejected > 0 {
		return cli.PartialError{Err: fmt.Errorf("%s took the rest, and rejected %d records: %.300s", p.to.Redacted(),
			p.rejected, cmp.Or(p.why, "it does not say why"))}
	}
	return nil
}

func (p *Push) send() error {
	text, err := proto.Marshal(&logspb.LogsData{ResourceLogs: p.logs}) // it is encoded as a request for logs
	if err != nil {
		return fmt.Errorf("encode incidents: %w", err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	p.logs, p.n = nil, 0
	for n := 1; ; n++ {
		wait, err := p.once(packed.Bytes())
		if wait == 0 || n == tries {
			if err != nil {
				err = fmt.Errorf("send incidents to %s: %w", p.to.Redacted(), err)
			}
			return err
		}
		select {
		case <-p.after(max(wait, time.Second<<(n-1))):
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// once sends a request. A wait says that it may be sent again after it.
func (p *Push) once(body []byte) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(p.ctx, http.MethodPost, p.to.String(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = p.headers.Clone()
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("User-Agent", "kubectl-quietcore")
	resp, err := p.client.Do(req)
	if err != nil {
		var outer *url.Error // it repeats the address
		if errors.As(err, &outer) {
			err = outer.Err
		}
		return 0, fmt.Errorf("%w; OTLP/HTTP has the port 4318 as a rule, gRPC, which this is not, 4317", err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxSaid))
	switch code := resp.StatusCode; {
	case code/100 == 2 && err == nil:
		p.partly(said)
		return 0, nil
	case code/100 == 2:
		return 0, err
	case code == http.StatusNotFound:
		return 0, fmt.Errorf("%s: give the base address of an OTLP/HTTP server, whose logs are at %s below it",
			resp.Status, logsPath)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return 0, fmt.Errorf("%s: it takes headers from OTEL_EXPORTER_OTLP_HEADERS", resp.Status)
	case slices.Contains([]int{429, 502, 503, 504}, code): // by OTLP's specification
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0: it does not say
		wait = time.Duration(min(max(seconds, 1), 60)) * time.Second
	}
	return wait, fmt.Errorf("%s%s", resp.Status, words(resp.Header, said))
}

// words are an answer's, where they are for people.
func words(header http.Header, said []byte) string {
	text := strings.TrimSpace(string(said))
	if strings.Contains(header.Get("Content-Type"), "protobuf") {
		_ = fields(said, func(n protowire.Number, _ uint64, v []byte) { // a Status; else there are no words
			if n == 2 {
				text = string(v)
			}
		})
	}
	if text == "" {
		return ""
	}
	return fmt.Sprintf(": %.300q", text)
}

// partly reads an ExportLogsServiceResponse, in which partial_success is 1, and in that rejected_log_records 1 and
// error_message 2. Its package would bring a gateway of gRPC with it.
func (p *Push) partly(said []byte) {
	_ = fields(said, func(n protowire.Number, _ uint64, v []byte) { // whatever else it says, it took the request
		if n != 1 {
			return
		}
		_ = fields(v, func(n protowire.Number, rejected uint64, why []byte) {
			switch {
			case n == 1 && int64(rejected) > 0:
				p.rejected += int64(rejected)
			case n == 2:
				p.why = string(why)
			}
		})
	})
}

// fields hands on those of a message that are numbers or bytes.
func fields(text []byte, give func(n protowire.Number, number uint64, bytes []byte)) error {
	for len(text) > 0 {
		n, kind, size := protowire.ConsumeTag(text)
		if size < 0 {
			return protowire.ParseError(size)
		}
		text = text[size:]
		switch kind {
		case protowire.VarintType:
			v, size := protowire.ConsumeVarint(text)
			if size < 0 {
				return protowire.ParseError(size)
			}
			give(n, v, nil)
			text = text[size:]
		case protowire.BytesType:
			v, size := protowire.ConsumeBytes(text)
			if size < 0 {
				return protowire.ParseError(size)
			}
			give(n, 0, v)
			text = text[size:]
		default:
			size := protowire.ConsumeFieldValue(n, kind, text)
			if size < 0 {
				return protowire.ParseError(size)
			}
			text = text[size:]
		}
	}
	return nil
}
