package ccl

import (
	"cmp"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
)

// OptionsFromEnv returns the options that the GOCCL_* variables of the environment set. The error
// for an unknown variable suggests a known one, that for a value says what is wanted. Some
// variables of NCCL and Gloo count where goccl's own are not set, as docs/options.md says.
func OptionsFromEnv() (Options, error) { return optionsFrom(os.Environ()) }

// others are variables of other libraries that count where one of goccl's is not set, the first one
// first.
var others = []struct{ option, variable, form string }{
	// The value says whose form it has (package tcp).
	{"GOCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME="},
	{"GOCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME="},
	{"GOCCL_IB_HCA", "NCCL_IB_HCA", ""},
	{"GOCCL_IB_GID_INDEX", "NCCL_IB_GID_INDEX", ""},
}

func optionsFrom(environ []string) (Options, error) {
	var lines []string
	values := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = strings.TrimSpace(value)
		if strings.HasPrefix(name, "GOCCL_") && name != "GOCCL_BUILD" { // that is for the import in Python
			if strings.Contains(value, "\n") {
				return Options{}, refused(name, value, fault.New(fault.Invalid, "a value has one line"))
			}
			lines = append(lines, pair)
		}
	}
	slices.Sort(lines) // the same error in every run
	for _, other := range others {
		if value := values[other.variable]; value != "" && values[other.option] == "" {
			values[other.option] = other.form + value
			lines = append(lines, other.option+"="+other.form+value)
		}
	}
	return ParseOptions(strings.Join(lines, "\n"))
}

// job is what a launcher tells a process in the environment, as torch's launchers do.
type job struct {
	rank, size int
	host, port string // where rank 0 waits for the others
	agent      bool   // the launcher serves the store there, and not rank 0
	prefix     string // of keys in the store
}

// howToLaunch is said where the environment is not that of a rank.
const howToLaunch = "a launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, such as goccl run -n 2 -- COMMAND, " +
	"or torchrun --no-python COMMAND"

// launched returns what the launcher of this process has set.
func launched() (job, error) { return jobFrom(os.Getenv) }

func jobFrom(environ func(name string) string) (j job, err error) {
	number := func(name string, least, most int) int {
		text := environ(name)
		n, e := strconv.Atoi(text)
		switch {
		case err != nil:
		case text == "":
			err = fault.New(fault.Invalid, "%s is not set: %s", name, howToLaunch)
		case e != nil || n < least || n > most:
			err = fault.New(fault.Invalid, "%s=%q, wanted is a number from %d to %d", name, text, least, most)
		}
		return n
	}
	j.size = number("WORLD_SIZE", 1, MaxRanks)
	j.rank = number("RANK", 0, max(j.size, 1)-1)
	j.port = strconv.Itoa(number("MASTER_PORT", 1, 1<<16-1))
	if j.host = environ("MASTER_ADDR"); j.host == "" && err == nil {
		err = fault.New(fault.Invalid, "MASTER_ADDR is not set: %s", howToLaunch)
	}
	// torchrun's agents serve a store, which outlives the ranks: those of each start have their own
	// part of it.
	if j.agent = environ("TORCHELASTIC_USE_AGENT_STORE") == "True"; j.agent {
		j.prefix = "//worker/attempt_" + cmp.Or(environ("TORCHELASTIC_RESTART_COUNT"), "0") + "/"
	}
	return j, err
}

func (j *job) address() string { return net.JoinHostPort(j.host, j.port) }

// listenAt returns where rank 0 waits: for a loopback address there, for others on all interfaces,
// since a name may mean something else on its own host, or a host in front of this one.
func (j *job) listenAt() string {
	if ip := net.ParseIP(j.host); ip.IsLoopback() || j.host == "localhost" {
		return j.address()
	}
	return net.JoinHostPort("", j.port)
}
