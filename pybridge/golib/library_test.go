package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// build builds the library as a release does, and the C program that uses it. It returns their paths.
// Without a C compiler it skips the test.
func build(t *testing.T) (library, driver string) {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skip("no C compiler: ", err)
	}
	dir := t.TempDir()
	library = filepath.Join(dir, "libgoloop.so")
	driver = filepath.Join(dir, "driver")
	exports, err := filepath.Abs("exports.map")
	if err != nil {
		t.Fatal(err)
	}
	flags := "-s -w -X runtime.godebugDefault=" +
		"asyncpreemptoff=1,containermaxprocs=0,profstackdepth=0,gcshrinkstackoff=1 " +
		`'-extldflags="-Wl,--wrap=pthread_getattr_np,--wrap=pthread_create,--wrap=mmap,--wrap=munmap,--version-script=` + exports + `"'`
	run(t, "go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false",
		"-overlay", overlay(t), "-ldflags", flags, "-o", library, ".")
	run(t, cc, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I..", "-o", driver,
		filepath.Join("testdata", "driver.c"), "-ldl", "-lpthread")
	return library, driver
}

// overlay writes the list of files that replace files of the Go runtime in the library, and returns its
// path.
func overlay(t *testing.T) string {
	t.Helper()
	ours, err := filepath.Glob(filepath.Join("_runtime", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(run(t, "go", "env", "GOROOT"))
	replaced := map[string]string{}
	for _, each := range ours {
		path, err := filepath.Abs(each)
		if err != nil {
			t.Fatal(err)
		}
		replaced[filepath.Join(root, "src", "runtime", filepath.Base(each))] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The runtime's poller has no descriptors. Timers and the reads of package os work without them.
func TestPollerHasNoDescriptors(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the file is Linux's")
	}
	program := "./" + filepath.Join("testdata", "timers")
	if out := run(t, "go", "run", "-overlay", overlay(t), program); out != "done\n" {
		t.Errorf("open afterwards:\n%s", out)
	}
}

// run runs a program that must succeed, and returns its output. The time limit ends a program that hangs,
// which would otherwise hang the test binary.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

func TestLibraryThroughItsTable(t *testing.T) {
	library, driver := build(t)
	for _, name := range []string{"stream", "timers", "wake", "threads", "monitor", "yield_to_flusher"} {
		t.Run(name, func(t *testing.T) { run(t, driver, library, name) })
	}
	t.Run("reactor_facts", func(t *testing.T) {
		t.Setenv("GOMAXPROCS", "1") // runtime_gomaxprocs.go raises it
		var facts map[string]any
		out := run(t, driver, library, "reactor_facts")
		if err := json.Unmarshal([]byte(out), &facts); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		if facts["gomaxprocs"].(float64) != 2 || !strings.HasPrefix(facts["go"].(string), "go") {
			t.Errorf("facts are %v", facts)
		}
	})
	t.Run("exports one symbol", func(t *testing.T) {
		if _, err := exec.LookPath("nm"); err != nil {
			t.Skip("no nm to list the symbols: ", err)
		}
		fields := strings.Fields(run(t, "nm", "-D", "--defined-only", library))
		if len(fields) != 3 || !slices.Contains(fields, "goloop_table") {
			t.Errorf("the library exports %v", fields)
		}
	})
}
