package mem

import "errors"

// Pinner gives a device access to memory: a GPU, or a network adapter.
type Pinner interface {
	// Pin is given whole pages. They stay where they are until Unpin.
	Pin(memory []byte) error
	Unpin(memory []byte) error
}

// Pins is memory to which devices have access.
type Pins struct {
	memory  []byte
	devices []Pinner
}

// Pin gives the devices access to memory: all of them, or after an error none.
func Pin(memory []byte, devices ...Pinner) (Pins, error) {
	pins := Pins{memory: memory}
	for _, d := range devices {
		if err := d.Pin(memory); err != nil {
			return Pins{}, errors.Join(err, pins.Unpin())
		}
		pins.devices = append(pins.devices, d)
	}
	return pins, nil
}

// Unpin ends the access, in reverse order.
func (p Pins) Unpin() error {
	var errs []error
	for i := len(p.devices) - 1; i >= 0; i-- {
		errs = append(errs, p.devices[i].Unpin(p.memory))
	}
	return errors.Join(errs...)
}
