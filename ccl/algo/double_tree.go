package algo

// A double tree is two binary trees over the nodes 1 to k below the same root 0, which has one child in each. A node that has
// children in one of them has none in the other, so a rank that passes on one half of the data in each tree
// sends no more than it receives.
//
// The first tree is numbered in order: odd nodes are leaves, and a node's level is the number of its trailing zeros. The second
// is the first with the nodes in reverse for even k, and moved on by one for odd k.

// treeNode is a node's place in one of the trees. Parent is -1 at the root; children are -1 where there are none.
// In a tree of the first kind all of the left subtree has lower numbers than the node, all of the right one higher ones.
type treeNode struct{ parent, left, right int }

// children are those that exist.
func (t treeNode) children() []int {
	var all []int
	for _, c := range []int{t.left, t.right} {
		if c >= 0 {
			all = append(all, c)
		}
	}
	return all
}

// inOrderTree is the place of node v in the first tree, over nodes 1 to k.
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

// doubleTree is the places of node v in both trees.
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
