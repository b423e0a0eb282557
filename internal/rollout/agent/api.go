package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/rollout"
)

// The kinds of objects.
const (
	groupVersion = "quietcore.dev/v1alpha1"
	root         = "/apis/" + groupVersion + "/"
	PoliciesPath = root + "quietcorepolicies"
	PolicyKind   = "QuietcorePolicy"
	TurnsPath    = root + "quietcoreturns"
	TurnKind     = "QuietcoreTurn"
	NodesPath    = root + "quietcorenodes"
	NodeKind     = "QuietcoreNode"

	fieldManager = "quietcore"
	// maxText bounds a sentence in an object, in bytes.
	maxText = 1000
)

// Node is the owner of what is written: it goes with the Node.
type Node struct {
	Name string
	UID  types.UID // empty: not known
}

// Report is what a node says of itself, the status of its QuietcoreNode.
type Report struct {
	Policy   string `json:"policy,omitempty"`   // that it is to follow
	Revision int64  `json:"revision,omitempty"` // of it
	// Applied is the policy in force; nil: the node's file alone.
	Applied *InForce      `json:"applied,omitempty"`
	State   rollout.State `json:"state"`
	Why     string        `json:"why,omitempty"`
	Version string        `json:"version,omitempty"` // of the daemon
}

// InForce is a policy that a node has taken over.
type InForce struct {
	Policy   string    `json:"policy"`
	Revision int64     `json:"revision"`
	Since    time.Time `json:"since"`
}

// API writes what the agent decides. Each is a request.
type API interface {
	// Take creates a turn and returns its UID; an AlreadyExists error: another node was first.
	Take(ctx context.Context, n Node, t *rollout.Turn) (uid string, err error)
	// Mark writes generation and failure of the turn with that UID.
	Mark(ctx context.Context, t *rollout.Turn) error
	// Release deletes the turn with that UID.
	Release(ctx context.Context, t *rollout.Turn) error
	Report(ctx context.Context, n Node, r *Report) error
}

// gone says that the turn is not there any more, or is another's.
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || kube.AnotherUID(err)
}

type server struct{ api *kube.Lazy }

// NewAPI connects lazily. config is kube.Client's REST.
func NewAPI(config func() (*rest.Config, error)) API { return server{kube.NewLazy(config)} }

func (n *Node) owner() []map[string]any {
	if n.UID == "" {
		return nil
	}
	return []map[string]any{{"apiVersion": "v1", "kind": "Node", "name": n.Name, "uid": n.UID}}
}

func (s server) Take(ctx context.Context, n Node, t *rollout.Turn) (string, error) {
	c, err := s.api.Connect()
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]any{"apiVersion": groupVersion, "kind": TurnKind,
		"metadata": map[string]any{"name": t.Name, "ownerReferences": n.owner()}, "spec": turnSpec{t.Policy,
			strconv.Itoa(t.Place), t.Node, t.Generation, t.Failed}})
	if err != nil {
		return "", err
	}
	raw, err := c.Post().AbsPath(TurnsPath).Param("fieldManager", fieldManager).MaxRetries(0).Body(body).Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var made struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &made); err != nil || made.Metadata.UID == "" {
		return "", fmt.Errorf("create turn %s: the answer is no object: %w", t.Name, err)
	}
	return string(made.Metadata.UID), nil
}

// turnSpec is the spec of a QuietcoreTurn.
type turnSpec struct {
	Policy   string `json:"policy"`
	Place    string `json:"place"` // text, so that the schema can compare it with the name
	Node     string `json:"node"`
	Revision int64  `json:"revision"`
	Failed   string `json:"failed,omitempty"`
}

func (s server) Mark(ctx context.Context, t *rollout.Turn) error {
	c, err := s.api.Connect()
	if err != nil {
		return err
	}
	var failed any // null takes it away
	if t.Failed != "" {
		failed = clip(t.Failed)
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": t.UID},
		"spec": map[string]any{"revision": t.Generation, "failed": failed}})
	if err != nil {
		return err
	}
	return c.Patch(types.MergePatchType).AbsPath(TurnsPath, t.Name).Param("fieldManager", fieldManager).
		MaxRetries(0).Body(body).Do(ctx).Error()
}

func (s server) Release(ctx context.Context, t *rollout.Turn) error {
	c, err := s.api.Connect()
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]any{"uid": t.UID}})
	if err != nil {
		return err
	}
	return c.Delete().AbsPath(TurnsPath, t.Name).MaxRetries(0).Body(body).Do(ctx).Error()
}

func (s server) Report(ctx context.Context, n Node, r *Report) error {
	c, err := s.api.Connect()
	if err != nil {
		return err
	}
	cut := *r
	cut.Why = clip(r.Why)
	body, err := json.Marshal(map[string]any{"apiVersion": groupVersion, "kind": NodeKind,
		"metadata": map[string]any{"name": n.Name, "ownerReferences": n.owner()}, "status": cut})
	if err != nil {
		return err
	}
	return c.Patch(types.ApplyPatchType).AbsPath(NodesPath, n.Name).Param("fieldManager", fieldManager).
		Param("force", "true").MaxRetries(0).Body(body).Do(ctx).Error()
}

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText - len("…")
	for end > 0 && text[end]&0xc0 == 0x80 {
		end--
	}
	return text[:end] + "…"
}

// readTurn reads an object; ok is false for what is none.
func readTurn(o *kube.CustomObject) (t rollout.Turn, ok bool) {
	var spec turnSpec
	if o.TooLarge || json.Unmarshal(o.Spec, &spec) != nil {
		return rollout.Turn{}, false
	}
	place, err := strconv.Atoi(spec.Place)
	if err != nil {
		return rollout.Turn{}, false
	}
	return rollout.Turn{Name: o.Name, UID: o.UID, Policy: spec.Policy, Place: place, Node: spec.Node,
		Generation: spec.Revision, Failed: spec.Failed}, true
}
