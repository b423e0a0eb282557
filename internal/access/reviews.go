package access

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/kube"
)

// Reviews is the API server as a Reviewer.
type Reviews struct{ api *kube.Lazy }

// NewReviews connects lazily, since credentials may not exist yet. config is
// kube.Client's REST.
func NewReviews(config func() (*rest.Config, error)) *Reviews {
	return &Reviews{kube.NewLazy(func() (*rest.Config, error) {
		c, err := config()
		if err != nil {
			return nil, err
		}
		c = rest.CopyConfig(c)
		c.QPS, c.Burst = 2*allRate, 2*allBurst // two requests a review; the guard bounds them
		return c, nil
	})}
}

// Review implements Reviewer.
func (s *Reviews) Review(ctx context.Context, q Question) (Verdict, error) {
	who := authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: q.Token},
	}
	if q.Audience != "" {
		who.Spec.Audiences = []string{q.Audience}
	}
	if err := s.create(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", &who); err != nil {
		return Verdict{}, fmt.Errorf("review a token: %w", err)
	}
	// An authenticator that knows no audiences answers without them.
	if !who.Status.Authenticated || q.Audience != "" && !slices.Contains(who.Status.Audiences, q.Audience) {
		return Verdict{}, nil
	}
	user := who.Status.User
	may := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: q.Path, Verb: "get"},
		},
	}
	for name, values := range user.Extra {
		if may.Spec.Extra == nil {
			may.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		may.Spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	if err := s.create(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &may); err != nil {
		return Verdict{}, fmt.Errorf("review the access of %s: %w", user.Username, err)
	}
	return Verdict{Authenticated: true, Allowed: may.Status.Allowed && !may.Status.Denied}, nil
}

// create posts a review, and reads the answer into it.
func (s *Reviews) create(ctx context.Context, path string, review any) error {
	c, err := s.api.Connect()
	if err != nil {
		return err
	}
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	text, err := c.Post().AbsPath(path).Body(body).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, review)
}
