// The CDK app: one stack for each environment of environments/*.yaml, or for the one
// that -c env=NAME names.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/infra/cdk/stack"
)

// dist is where make build leaves the functions' binaries, seen from this folder.
const dist = "../../dist/arm64"

func main() {
	err := synth()
	jsii.Close() // before the exit: it removes the runtime's temporary files
	if err != nil {
		fmt.Fprintln(os.Stderr, "llmq cdk:", err)
		os.Exit(1)
	}
}

func synth() (err error) {
	app := awscdk.NewApp(nil)
	files, err := environments(app)
	if err != nil {
		return err
	}
	staging, err := os.MkdirTemp("", "llmq-cdk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	for _, file := range files {
		env, err := stack.Load(file)
		if err != nil {
			return err
		}
		code, err := env.Stage(dist, staging)
		if err != nil {
			return err
		}
		stack.New(app, env, code)
	}
	app.Synth(nil)
	return nil
}

// environments lists the files that are asked for.
func environments(app awscdk.App) ([]string, error) {
	pattern := "*"
	if name, ok := app.Node().TryGetContext(jsii.String("env")).(string); ok {
		pattern = name
	}
	files, err := filepath.Glob(filepath.Join("environments", pattern+".yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no file environments/%s.yaml", pattern)
	}
	return files, nil
}
