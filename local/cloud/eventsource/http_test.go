package eventsource

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awslambda "github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
)

// The whole life of a mapping by the real SDK.
func TestAPI_LifeByTheSDK(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		ctx := t.Context()
		created, err := w.api.CreateEventSourceMapping(ctx, &awslambda.CreateEventSourceMappingInput{
			FunctionName: aws.String("worker"), EventSourceArn: aws.String(callsARN), BatchSize: aws.Int32(100), MaximumBatchingWindowInSeconds: aws.Int32(2),
			FunctionResponseTypes: []types.FunctionResponseType{types.FunctionResponseTypeReportBatchItemFailures},
			ScalingConfig:         &types.ScalingConfig{MaximumConcurrency: aws.Int32(7)},
			MetricsConfig:         &types.EventSourceMappingMetricsConfig{Metrics: []types.EventSourceMappingMetric{types.EventSourceMappingMetricEventCount}},
		})
		if err != nil {
			t.Fatal(err)
		}
		uuid := created.UUID
		if aws.ToString(created.State) != "Creating" || !created.LastModified.Equal(time.Now()) {
			t.Errorf("got state %s, modified %v", *created.State, created.LastModified)
		}
		time.Sleep(5 * time.Second)
		got, err := w.api.GetEventSourceMapping(ctx, &awslambda.GetEventSourceMappingInput{UUID: uuid})
		if err != nil {
			t.Fatal(err)
		}
		if aws.ToString(got.State) != "Enabled" || aws.ToString(got.StateTransitionReason) != "USER_INITIATED" || *got.BatchSize != 100 || *got.MaximumBatchingWindowInSeconds != 2 ||
			aws.ToString(got.FunctionArn) != "arn:aws:lambda:us-east-1:000000000000:function:worker" || aws.ToString(got.EventSourceArn) != callsARN ||
			got.FunctionResponseTypes[0] != "ReportBatchItemFailures" || *got.ScalingConfig.MaximumConcurrency != 7 || got.MetricsConfig.Metrics[0] != "EventCount" ||
			aws.ToString(got.EventSourceMappingArn) != "arn:aws:lambda:us-east-1:000000000000:event-source-mapping:"+*uuid ||
			!got.LastModified.Equal(time.Now().Add(-2*time.Second)) || got.LastProcessingResult != nil {
			t.Errorf("got %+v", got)
		}

		// Empty values take settings away; what is left out stays.
		updated, err := w.api.UpdateEventSourceMapping(ctx, &awslambda.UpdateEventSourceMappingInput{
			UUID: uuid, FunctionResponseTypes: []types.FunctionResponseType{}, ScalingConfig: &types.ScalingConfig{},
			MetricsConfig: &types.EventSourceMappingMetricsConfig{Metrics: []types.EventSourceMappingMetric{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if aws.ToString(updated.State) != "Updating" || *updated.BatchSize != 100 || updated.ScalingConfig != nil || updated.MetricsConfig != nil || len(updated.FunctionResponseTypes) != 0 {
			t.Errorf("got %+v", updated)
		}
		var inUse *types.ResourceInUseException
		if _, err := w.api.UpdateEventSourceMapping(ctx, &awslambda.UpdateEventSourceMappingInput{UUID: uuid, BatchSize: aws.Int32(1)}); !errors.As(err, &inUse) ||
			inUse.ErrorMessage() != "Cannot update the event source mapping because it is in use." {
			t.Errorf("got %v", err)
		}
		if _, err := w.api.DeleteEventSourceMapping(ctx, &awslambda.DeleteEventSourceMappingInput{UUID: uuid}); !errors.As(err, &inUse) {
			t.Errorf("got %v", err)
		}
		time.Sleep(5 * time.Second)
		if m := w.mappings.Source(*uuid).Mapping(); m.MaximumConcurrency != 0 || m.ReportBatchItemFailures || m.EventCount || m.BatchSize != 100 {
			t.Errorf("in force: %+v", m)
		}

		disabled, err := w.api.UpdateEventSourceMapping(ctx, &awslambda.UpdateEventSourceMappingInput{UUID: uuid, Enabled: aws.Bool(false), FunctionName: aws.String("other")})
		if err != nil || aws.ToString(disabled.State) != "Disabling" || !strings.HasSuffix(*disabled.FunctionArn, ":function:other") {
			t.Fatalf("got %+v, %v", disabled, err)
		}
		time.Sleep(5 * time.Second)
		gone, err := w.api.DeleteEventSourceMapping(ctx, &awslambda.DeleteEventSourceMappingInput{UUID: uuid})
		if err != nil || aws.ToString(gone.State) != "Deleting" {
			t.Fatalf("got %+v, %v", gone, err)
		}
		time.Sleep(5 * time.Second)
		var missing *types.ResourceNotFoundException
		if _, err := w.api.GetEventSourceMapping(ctx, &awslambda.GetEventSourceMappingInput{UUID: uuid}); !errors.As(err, &missing) ||
			missing.ErrorMessage() != "The resource you requested does not exist." {
			t.Errorf("got %v", err)
		}
	})
}

func TestAPI_DefaultsOfACreate(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		got, err := w.api.CreateEventSourceMapping(t.Context(), &awslambda.CreateEventSourceMappingInput{FunctionName: aws.String("worker"), EventSourceArn: aws.String(callsARN)})
		if err != nil {
			t.Fatal(err)
		}
		if *got.BatchSize != 10 || *got.MaximumBatchingWindowInSeconds != 0 || got.ScalingConfig != nil || len(got.FunctionResponseTypes) != 0 {
			t.Errorf("got %+v", got)
		}
		time.Sleep(5 * time.Second)
		if s := w.state(*got.UUID); s != StateEnabled {
			t.Errorf("%s", s)
		}
	})
}

func TestAPI_ListPagesAndFilters(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		w.add(nil)
		w.add(func(m *Mapping) { m.Function = "other" })
		list := func(in *awslambda.ListEventSourceMappingsInput) (functions []string) {
			t.Helper()
			pages := awslambda.NewListEventSourceMappingsPaginator(w.api, in)
			for pages.HasMorePages() {
				page, err := pages.NextPage(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range page.EventSourceMappings {
					functions = append(functions, (*m.FunctionArn)[strings.LastIndex(*m.FunctionArn, ":")+1:])
				}
			}
			return functions
		}
		tests := []struct {
			name string
			in   awslambda.ListEventSourceMappingsInput
			want []string
		}{
			{"all, one by one", awslambda.ListEventSourceMappingsInput{MaxItems: aws.Int32(1)}, []string{"worker", "other"}},
			{"of a function", awslambda.ListEventSourceMappingsInput{FunctionName: aws.String("other")}, []string{"other"}},
			{"of an ARN", awslambda.ListEventSourceMappingsInput{FunctionName: aws.String("arn:aws:lambda:us-east-1:000000000000:function:worker")}, []string{"worker"}},
			{"of a queue", awslambda.ListEventSourceMappingsInput{EventSourceArn: aws.String(callsARN)}, []string{"worker", "other"}},
			{"of no queue", awslambda.ListEventSourceMappingsInput{EventSourceArn: aws.String(callsARN + "2")}, nil},
		}
		for _, tt := range tests {
			if diff := cmp.Diff(tt.want, list(&tt.in)); diff != "" {
				t.Errorf("%s: %s", tt.name, diff)
			}
		}
	})
}

func TestAPI_RefusesByName(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		w.add(nil)
		uuid := aws.String(w.mappings.List("", "")[0].UUID)
		tests := []struct {
			name       string
			in         awslambda.UpdateEventSourceMappingInput
			code, text string
		}{
			{"filters", awslambda.UpdateEventSourceMappingInput{FilterCriteria: &types.FilterCriteria{Filters: []types.Filter{{Pattern: aws.String(`{}`)}}}}, "InvalidParameterValueException", "FilterCriteria"},
			{"provisioned pollers", awslambda.UpdateEventSourceMappingInput{ProvisionedPollerConfig: &types.ProvisionedPollerConfig{MinimumPollers: aws.Int32(2)}}, "InvalidParameterValueException", "ProvisionedPollerConfig"},
			{"a stream's setting", awslambda.UpdateEventSourceMappingInput{BisectBatchOnFunctionError: aws.Bool(true)}, "InvalidParameterValueException", "BisectBatchOnFunctionError"},
			{"Kafka's metric", awslambda.UpdateEventSourceMappingInput{MetricsConfig: &types.EventSourceMappingMetricsConfig{Metrics: []types.EventSourceMappingMetric{"ErrorCount"}}}, "ValidationException", "'metricsConfig.metrics'"},
			{"another response type", awslambda.UpdateEventSourceMappingInput{FunctionResponseTypes: []types.FunctionResponseType{"X"}}, "ValidationException", "'functionResponseTypes'"},
			{"concurrency of 0", awslambda.UpdateEventSourceMappingInput{ScalingConfig: &types.ScalingConfig{MaximumConcurrency: aws.Int32(0)}}, "ValidationException", "Value '0' at 'scalingConfig.maximumConcurrency'"},
			{"concurrency of 1001", awslambda.UpdateEventSourceMappingInput{ScalingConfig: &types.ScalingConfig{MaximumConcurrency: aws.Int32(1001)}}, "ValidationException", "less than or equal to 1000"},
			{"batch of 0", awslambda.UpdateEventSourceMappingInput{BatchSize: aws.Int32(0)}, "ValidationException", "'batchSize'"},
			{"large batch, no window", awslambda.UpdateEventSourceMappingInput{BatchSize: aws.Int32(11)}, "InvalidParameterValueException", "Maximum batch window"},
		}
		for _, tt := range tests {
			tt.in.UUID = uuid
			_, err := w.api.UpdateEventSourceMapping(t.Context(), &tt.in)
			var e smithy.APIError
			if !errors.As(err, &e) || e.ErrorCode() != tt.code || !strings.Contains(e.ErrorMessage(), tt.text) {
				t.Errorf("%s: got %v", tt.name, err)
			}
		}
		synctest.Wait()
		if got := w.state(*uuid); got != StateEnabled {
			t.Errorf("%s after refusals", got)
		}
		if _, err := w.api.UpdateEventSourceMapping(t.Context(), &awslambda.UpdateEventSourceMappingInput{UUID: uuid, FilterCriteria: &types.FilterCriteria{}}); err != nil {
			t.Errorf("no filters: %v", err)
		}
	})
}

func TestAPI_OnTheWire(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		tests := []struct {
			method, path, body string
			status             int
			code, want         string
		}{
			{"POST", Prefix + "/", `{"FunctionName":"worker","EventSourceArn":"` + callsARN + `"}`, 202, "", `"State":"Creating"`},
			{"GET", Prefix + "/", ``, 200, "", `"LastModified":946684800,`},
			{"GET", Prefix + "/none", ``, 404, "ResourceNotFoundException", `{"Message":"The resource you requested does not exist.","Type":"User"}`},
			{"POST", Prefix, `{"FunctionName":"worker"`, 400, "InvalidRequestContentException", `"message":"Could not parse request body into json."`},
			{"POST", Prefix, `{}`, 400, "ValidationException", `'functionName'`},
			{"POST", Prefix, `{"FunctionName":"other","EventSourceArn":"` + callsARN + `","Tags":{"a":"b"}}`, 400, "InvalidParameterValueException", `Tags is not supported`},
			{"GET", Prefix + "?MaxItems=x", ``, 400, "InvalidParameterValueException", `MaxItems`},
			{"GET", Prefix + "?Marker=x", ``, 400, "InvalidParameterValueException", `Invalid marker.`},
			{"PATCH", Prefix, ``, 404, "UnknownOperationException", ``},
			{"DELETE", Prefix, ``, 404, "UnknownOperationException", ``},
			{"GET", Prefix + "/a/b", ``, 404, "UnknownOperationException", ``},
			{"GET", "/2015-03-31/functions", ``, 404, "UnknownOperationException", ``},
		}
		for _, tt := range tests {
			status, header, body := w.wire(tt.method, tt.path, tt.body)
			if status != tt.status || header.Get("X-Amzn-Errortype") != tt.code || !strings.Contains(body, tt.want) || header.Get("X-Amzn-Requestid") == "" {
				t.Errorf("%s %s %s: got %d %v %s", tt.method, tt.path, tt.body, status, header, body)
			}
		}
	})
}

func FuzzAPI(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `[]`, `{"ScalingConfig":{"MaximumConcurrency":-1}}`, `{"FunctionResponseTypes":[""],"FilterCriteria":{"Filters":[null]}}`, `{"BatchSize":1e9}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := http.NewRequest(http.MethodPut, "/", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := readChange(nil, req)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("got %v, which has no code", err)
			}
			return
		}
		if m := c.apply(Mapping{Function: "f", QueueURL: "u", QueueARN: "a", Region: "r", BatchSize: 10}); m.bounds() == nil && m.Function != "" && m.check() != nil {
			t.Errorf("accepted %+v, which can't run: %v", m, m.check())
		}
	})
}
