// Package placement is what the scheduler knows of nodes, and what they would answer: free of
// the scheduler's framework and of the API server.
//
// A [Cluster] holds an immutable [State] a node: what the node published, and the pods that
// are on their way there and that it does not know yet. Readers take a state and ask; Take
// checks once more and adds the pod in one step, so that no CPUs are promised twice. What is
// on its way ends when the node knows the pod, the pod is gone, or its binding failed; never
// because time has passed.
//
//	c := placement.NewCluster()
//	c.Publish("node-a", node)                 // a NodeResourceTopology was read
//	wish := placement.NewWish(&pod)
//	place, refusal := c.Node("node-a").Ask(wish, placement.Load{SharedMilli: requested})
//	refusal = c.Take("node-a", wish, load, place)
package placement
