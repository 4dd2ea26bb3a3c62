package topology

import (
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/topo/network"
)

// mostNamed is how many ranks that are connected in the same way are named; of more the first and
// the last are.
const mostNamed = 8

// printed returns a network for people, as trees, and the links beside them by class.
func printed(t *network.Topology, about string) string {
	p := &printer{t: t}
	roots, beside := t.Tree()
	fmt.Fprintf(&p.text, "%s: %d ranks, %d other nodes, %d links", t.Name, t.Ranks(), len(t.Nodes)-t.Ranks(), len(t.Links))
	if t.Startup > 0 {
		fmt.Fprintf(&p.text, "; a message costs its sender %.3g µs", t.Startup*1e6)
	}
	p.text.WriteString("\n" + about)
	if limits := t.Limits.String(); limits != "" {
		p.text.WriteString("limits: " + limits + "\n")
	}
	p.level(roots, "")
	ends := make([][]string, len(t.Classes))
	for _, i := range beside {
		l := t.Links[i]
		ends[l.Class] = append(ends[l.Class], t.Nodes[l.From].Name+" - "+t.Nodes[l.To].Name)
	}
	for class, of := range ends {
		if len(of) > 0 {
			c := &t.Classes[class]
			fmt.Fprintf(&p.text, "%s (%s): %s\n", c.Name, c.Rates(), few(of, ", "))
		}
	}
	return p.text.String()
}

type printer struct {
	t    *network.Topology
	text strings.Builder
}

// level prints branches, one below the other; those without branches of their own, and with links
// of one class, in one line.
func (p *printer) level(all []network.Branch, indent string) {
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && p.alike(&all[i], &all[j]) {
			j++
		}
		names := make([]string, 0, j-i)
		for k := i; k < j; k++ {
			names = append(names, p.t.Nodes[all[k].Node].Label())
		}
		line := indent + few(names, ", ")
		if l := all[i].Link; l >= 0 {
			line += "  " + p.t.Classes[p.t.Links[l].Class].Rates()
		}
		p.text.WriteString(line + "\n")
		p.level(all[i].Below, indent+"  ")
		i = j
	}
}

func (p *printer) alike(a, b *network.Branch) bool {
	if a.Below != nil || b.Below != nil || (a.Link < 0) != (b.Link < 0) ||
		p.t.Nodes[a.Node].Part != p.t.Nodes[b.Node].Part {
		return false
	}
	return a.Link < 0 || p.t.Links[a.Link].Class == p.t.Links[b.Link].Class
}

func few(names []string, between string) string {
	if len(names) <= mostNamed {
		return strings.Join(names, between)
	}
	return fmt.Sprintf("%s … %s (%d)", strings.Join(names[:2], between), names[len(names)-1], len(names))
}
