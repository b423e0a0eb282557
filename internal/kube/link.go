package kube

import (
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Limits of one daemon. A cluster has thousands, so they are modest: a start costs two
// lists and two watches, a pod's life no request.
const (
	requestsPerSecond = 5
	requestBurst      = 10
	requestTimeout    = 15 * time.Second
	// listTimeout is longer: a node's pods can have tens of megabytes of annotations.
	listTimeout = time.Minute
	// watchOpening is how long the first byte of a watch may take. Some proxies forward
	// nothing before the first event, and bookmarks come once a minute.
	watchOpening = 90 * time.Second
	// watchSlack is how much later than the server we end a watch: only a connection
	// that died silently lasts that long.
	watchSlack = 30 * time.Second
)

// link is a connection to the API server: one transport, one client per group.
type link struct {
	config    *rest.Config
	transport http.RoundTripper
	core      rest.Interface
	events    rest.Interface
}

// connect reads the credentials once they exist. The link is permanent: client-go
// rereads rotated tokens and certificates itself.
func (c *Client) connect() (*link, error) {
	c.dial.Lock()
	defer c.dial.Unlock()
	if c.link != nil {
		return c.link, nil
	}
	config, err := credentials(c.o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "quietcore/" + c.o.Version
	config.QPS, config.Burst = c.qps, requestBurst
	config.Timeout = 0 // a watch has none; every other request brings its own
	config.WarningHandler = rest.NoWarnings{}
	l, err := newLink(config)
	if err != nil {
		return nil, err
	}
	c.link = l
	return l, nil
}

func credentials(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("read the service account: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

func newLink(config *rest.Config) (*link, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server at %s: %w", config.Host, err)
	}
	// Objects are decoded here; the scheme is for the Status of a refusal.
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	group := func(path string, gv schema.GroupVersion) (rest.Interface, error) {
		config := rest.CopyConfig(config)
		config.APIPath, config.GroupVersion, config.NegotiatedSerializer = path, &gv, codecs
		config.ContentType = runtime.ContentTypeJSON
		return rest.RESTClientForConfigAndClient(config, client)
	}
	l := &link{config: config, transport: client.Transport}
	if l.core, err = group("/api", corev1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	if l.events, err = group("/apis", eventsv1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	if l.transport == nil {
		l.transport = http.DefaultTransport
	}
	return l, nil
}
