package algo

// A double tree is two binary trees over the nodes 1 to k below the same root 0, which has one
// child in each tree. A node with children in one tree has none in the other, so a rank that passes
// on one half of the data in each tree sends no more than it receives.
//
// The first tree is numbered in order: odd nodes are leaves, and a node's level is the number of
// its trailing zeros. The second tree is the first with the nodes in reverse order for even k, and
// shifted by one for odd k.

// treeNode is a node's place in one of the trees. parent is -1 at the root; left and right are -1
// where there is no child. In the first tree, except at the root, the nodes of the left subtree
// have lower numbers than the node, and the nodes of the right subtree have higher numbers.
type treeNode struct{ parent, left, right int }

// children returns the children that exist.
func (t treeNode) children() []int {
	var all []int
	for _, c := range []int{t.left, t.right} {
		if c >= 0 {
			all = append(all, c)
		}
	}
	return all
}

// inOrderTree returns the place of node v in the first tree, over nodes 1 to k.
func inOrderTree(v, k int) treeNode {
	if v == 0 {
		return treeNode{-1, 1 << treeHeight(k), -1}
	}
	t := treeNode{parent: treeParent(v-1, k) + 1, left: -1, right: -1}
	left, right := treeChildren(v-1, k)
	if left >= 0 {
		t.left = left + 1
	}
	if right >= 0 {
		t.right = right + 1
	}
	return t
}

// doubleTree returns the places of node v in both trees.
func doubleTree(v, k int) [2]treeNode {
	there := func(v int) int { // the node's number in the first tree
		switch {
		case v <= 0:
			return v
		case k%2 == 0:
			return k + 1 - v
		}
		return v%k + 1
	}
	back := func(v int) int {
		switch {
		case v <= 0:
			return v
		case k%2 == 0:
			return k + 1 - v
		}
		return (v+k-2)%k + 1
	}
	second := inOrderTree(there(v), k)
	return [2]treeNode{inOrderTree(v, k), {back(second.parent), back(second.left), back(second.right)}}
}
