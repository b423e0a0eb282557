// Package rollout decides which QuietcorePolicy a node follows, and when its turn is to take over another one. It is
// pure: package internal/rollout/agent reads the objects and carries out what is decided here.
//
// Any number of daemons decide, each for its own node, and none of them leads. What keeps them from changing at once
// are turns: objects of the API server whose names are a policy's name and a place, 0 to maxUnavailable-1. A daemon
// changes its configuration while it holds a turn, and gives it back once its node has worked for a while. So:
//
//   - As many nodes are between two configurations as the policy has places, however late a daemon sees what the
//     others did: a name exists once.
//   - A node that does not work keeps its turn, marked as failed. No other begins while there is such a mark of the
//     same revision.
//   - A daemon that is gone keeps its turn. The API server takes it away with the Node.
//
// A policy that says mode: observe needs no turn, since it can break nothing and may have to be quick. Nor does a node
// that no policy selects any more.
package rollout
