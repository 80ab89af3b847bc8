// Cost prints what environments cost on AWS, from their files and the dated price list.
package main

import (
	"fmt"
	"os"

	"github.com/llm-queue/llmq/pkg/llmq/awscost"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	prices, err := awscost.Load()
	if err != nil {
		return err
	}
	for _, file := range files {
		cfg, err := config.Load(file, nil)
		if err != nil {
			return err
		}
		if err := prices.Report(os.Stdout, cfg); err != nil {
			return err
		}
	}
	return nil
}
