// Limiter judges the law of the learned limit: the very Lua that the admission scripts
// run, against simulated providers, in virtual time. It prints a table of what the law
// reached next to an oracle that knows the quotas, and next to two plainer laws.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "limiter: "+err.Error())
		os.Exit(1)
	}
}

func run(args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("limiter", flag.ContinueOnError)
	flags.SetOutput(errOut)
	seeds := flags.Int("seeds", 3, "how many seeds to average over, 1 to 100")
	first := flags.Uint64("first", 1, "the first seed, to judge on seeds that the law was not tuned by")
	only := flags.String("only", "", "scenarios whose name begins so, separated by |")
	bare := flags.Bool("bare", false, "leave the baselines out")
	lawFile := flags.String("law", "", "judge the law in this file, not the product's")
	path := flags.String("out", "", "write the table to this file instead")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *seeds < 1 || *seeds > 100 {
		return fmt.Errorf("-seeds is %d; it must be from 1 to 100", *seeds)
	}
	text := capacity.LawText()
	if *lawFile != "" {
		b, err := os.ReadFile(*lawFile)
		if err != nil {
			return fmt.Errorf("read the law: %w", err)
		}
		text = string(b)
	}
	p, err := compile(text)
	if err != nil {
		return err
	}
	var rows []row
	decisions, began := 0, time.Now()
	for _, sc := range scenarios() {
		if !chosen(sc.name, *only) {
			continue
		}
		fmt.Fprintln(errOut, "· "+sc.name)
		r := judge(sc, *first, *seeds, p.limiter(capacity.DefaultLaw()), !*bare)
		decisions += r.decisions
		rows = append(rows, r)
	}
	fmt.Fprintf(errOut, "· %d decisions of the law, all of it in %v\n", decisions, time.Since(began).Round(time.Second))
	var table bytes.Buffer
	if err := writeReport(&table, rows, *first, *seeds, time.Now()); err != nil {
		return err
	}
	if *path == "" {
		_, err = out.Write(table.Bytes())
		return err
	}
	if err := os.WriteFile(*path, table.Bytes(), 0o644); err != nil { // a report, for everybody to read
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

func chosen(name, only string) bool {
	for prefix := range strings.SplitSeq(only, "|") {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
