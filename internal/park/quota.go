package park

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// quotaFile is one limit on processor time, set by a control group that contains this process.
type quotaFile struct {
	quota, period string // paths; in version 2, quota contains both numbers
}

// Quota returns how many cores' worth of time the control groups of this process grant it, and the
// file that sets this limit. Files are read below root ("/" for the real system). Without a limit,
// cores is +Inf. Quota reads both versions of control groups, and all groups from the process's own
// up to the mount.
func Quota(root string) (cores float64, file string) { return readQuota(quotaFiles(root)) }

func readQuota(files []quotaFile) (cores float64, file string) {
	cores = math.Inf(1)
	for _, f := range files {
		quota, err := os.ReadFile(f.quota)
		if err != nil {
			continue
		}
		var period []byte
		if f.period != "" {
			if period, err = os.ReadFile(f.period); err != nil {
				continue
			}
		}
		if c := parseQuota(quota, period); c < cores {
			cores, file = c, f.quota
		}
	}
	return cores, file
}

// parseQuota parses cpu.max ("max 100000", "150000 100000"), and cpu.cfs_quota_us (-1 for none)
// with cpu.cfs_period_us.
func parseQuota(quota, period []byte) float64 {
	q, rest := number(quota)
	if period == nil {
		period = rest
	}
	p, _ := number(period)
	if q <= 0 || p <= 0 {
		return math.Inf(1)
	}
	return float64(q) / float64(p)
}

// number parses the number at the start of text; n is 0 if there is none. It does not allocate.
func number(text []byte) (n int64, rest []byte) {
	for len(text) > 0 && text[0] == ' ' {
		text = text[1:]
	}
	for len(text) > 0 && '0' <= text[0] && text[0] <= '9' && n < 1<<50 {
		n = n*10 + int64(text[0]-'0')
		text = text[1:]
	}
	return n, text
}

// quotaFiles returns the files that may limit this process.
func quotaFiles(root string) []quotaFile {
	var files []quotaFile
	for _, g := range ControlGroups(root, "cpu") {
		if g.Version2 {
			files = append(files, quotaFile{quota: path.Join(g.Folder, "cpu.max")})
		} else {
			files = append(files,
				quotaFile{path.Join(g.Folder, "cpu.cfs_quota_us"), path.Join(g.Folder, "cpu.cfs_period_us")})
		}
	}
	return files
}

// ControlGroup is a control group that this process is in.
type ControlGroup struct {
	Folder   string
	Version2 bool
}

// ControlGroups returns the control groups of this process that a controller ("cpu", "memory") may
// serve, from its own up to the mount. It reads /proc/self/cgroup for the group and
// /proc/self/mountinfo for the mounts of groups: a container often mounts its own group as the
// root.
func ControlGroups(root, controller string) []ControlGroup {
	groups, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(path.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	var all []ControlGroup
	for line := range strings.Lines(string(groups)) {
		// number:controllers:group; version 2 is number 0 without controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		version2 := fields[0] == "0" && fields[1] == ""
		if !version2 && !hasWord(fields[1], controller) {
			continue
		}
		for line := range strings.Lines(string(mounts)) {
			at, top, ok := groupMount(line, version2, controller)
			if !ok {
				continue
			}
			for _, dir := range groupFolders(path.Join(root, at), top, fields[2]) {
				all = append(all, ControlGroup{dir, version2})
			}
			break
		}
	}
	return all
}

func hasWord(list, word string) bool {
	for each := range strings.SplitSeq(list, ",") {
		if each == word {
			return true
		}
	}
	return false
}

// groupMount parses a line of mountinfo. It returns where control groups of the given version are
// mounted, in version 1 those of a controller, and which group is at the top of the mount.
func groupMount(line string, version2 bool, controller string) (at, top string, ok bool) {
	// 36 35 98:0 /top /at options [optional fields] - type source super-options
	left, right, found := strings.Cut(line, " - ")
	l, r := strings.Fields(left), strings.Fields(right)
	if !found || len(l) < 5 || len(r) < 3 {
		return "", "", false
	}
	if version2 && r[0] != "cgroup2" || !version2 && (r[0] != "cgroup" || !hasWord(r[2], controller)) {
		return "", "", false
	}
	return unescape(l[4]), unescape(l[3]), true
}

// unescape decodes the octal escapes of mountinfo, such as \040.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// groupFolders returns the folders of group and of all groups that contain it, as far as they are
// visible below the mount.
func groupFolders(at, top, group string) []string {
	below, ok := strings.CutPrefix(group, strings.TrimSuffix(top, "/"))
	if !ok || below != "" && !strings.HasPrefix(below, "/") {
		// The group lies outside the mount: the visible groups are the best available.
		below = "/"
	}
	below = path.Clean("/" + below)
	var dirs []string
	for {
		dirs = append(dirs, path.Join(at, below))
		if below == "/" {
			return dirs
		}
		below = path.Dir(below)
	}
}
