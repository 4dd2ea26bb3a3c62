package driver

import (
	"sync"

	"github.com/ebitengine/purego"
)

// released has what is to be called when graphs are gone, by the numbers that C has for it.
var released struct {
	sync.Mutex
	last      uintptr
	functions map[uintptr]func()
}

// onRelease is what C calls. Callbacks are never freed, so the process has one, once it needs it.
var onRelease = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(number uintptr) {
		if release := takeRelease(number); release != nil {
			release()
		}
	})
})

func noteRelease(release func()) (number uintptr) {
	released.Lock()
	defer released.Unlock()
	if released.functions == nil {
		released.functions = map[uintptr]func(){}
	}
	released.last++
	released.functions[released.last] = release
	return released.last
}

// takeRelease returns the function of a number, once.
func takeRelease(number uintptr) func() {
	released.Lock()
	defer released.Unlock()
	release := released.functions[number]
	delete(released.functions, number)
	return release
}

// retain has a graph and what is made of it hold an object of CUDA, whose end calls release.
func (l *library) retain(graph uintptr, release func()) error {
	number := noteRelease(release)
	var object uintptr
	if err := l.cuUserObjectCreate(&object, number, onRelease(), 1, objectUnordered); err != nil {
		takeRelease(number)
		return err
	}
	err := l.cuGraphRetainUserObject(graph, object, 1, graphTakesObject)
	if err != nil {
		takeRelease(number)
		_ = l.cuUserObjectRelease(object, 1)
	}
	return err
}
