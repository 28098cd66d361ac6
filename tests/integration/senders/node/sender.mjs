// An agent for Node with OpenTelemetry's SDK: sends three spans, prints their ids, and says whether they were taken.
import { SpanStatusCode, context, trace } from "@opentelemetry/api";
import { detectResources, envDetector } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

const packages = { "http/protobuf": "proto", "http/json": "http", grpc: "grpc" };
const { OTLPTraceExporter } = await import(
  `@opentelemetry/exporter-trace-otlp-${packages[process.env.OTEL_EXPORTER_OTLP_PROTOCOL]}`
);
const provider = new NodeTracerProvider({
  resource: detectResources({ detectors: [envDetector] }),
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
});
const tracer = provider.getTracer("node-agent", "1.0");

const plan = tracer.startSpan("invoke_agent planner", { attributes: { "gen_ai.agent.name": "planner" } });
const tool = tracer.startSpan("execute_tool add", {}, trace.setSpan(context.active(), plan));
tool.setAttributes({ "gen_ai.tool.name": "add", count: 95, share: 0.25, done: true, names: ["a", "ü"], large: 2 ** 40 });
tool.addEvent("looked", { at: "table" });
tool.recordException(new Error("no table"));
tool.setStatus({ code: SpanStatusCode.ERROR, message: "no table" });
tool.end();
plan.end();
tracer.startSpan("forge", { attributes: { "leyden.call": 1 } }).end();

let wrong = "";
try {
  await provider.forceFlush();
} catch (error) {
  wrong = [error].flat().map((one) => `${one.code} ${one.message}`).join();
}
const ids = [plan, tool].map((span) => [span.spanContext().traceId, span.spanContext().spanId]);
console.log(JSON.stringify({ ids, wrong }));
process.exit(0);
