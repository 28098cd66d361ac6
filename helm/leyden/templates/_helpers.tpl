{{- define "leyden.labels" -}}
app.kubernetes.io/name: leyden
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "leyden.selector" -}}
app.kubernetes.io/name: leyden
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "leyden.image" -}}
{{ .root.Values.image.registry }}/leyden-{{ .component }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "leyden.url" -}}
http://{{ .root.Release.Name }}-{{ .component }}:{{ .port }}
{{- end }}

{{- define "leyden.env" -}}
- {name: LEYDEN_REDIS_URL, value: {{ .root.Values.redisUrl | quote }}}
{{- with .root.Values.brokerUrl }}
- {name: LEYDEN_BROKER_URL, value: {{ . | quote }}}
{{- end }}
- {name: LEYDEN_STORE_URL, value: {{ .root.Values.storeUrl | quote }}}
- {name: LEYDEN_GATEWAY_URL, value: {{ include "leyden.url" (dict "root" .root "component" "gateway" "port" 8100) | quote }}}
- {name: LEYDEN_COLLECTOR_URL, value: {{ include "leyden.url" (dict "root" .root "component" "collector" "port" 4318) | quote }}}
{{- range $name, $key := dict "LEYDEN_SIGNING_KEY" "signing-key" "LEYDEN_ENGINE_API_KEY" "engine-api-key" "LEYDEN_S3_ACCESS_KEY" "s3-access-key" "LEYDEN_S3_SECRET_KEY" "s3-secret-key" }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $.root.Values.existingSecret }}, key: {{ $key }}}}
{{- end }}
{{- end }}

{{- define "leyden.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "leyden.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* One container of ours: root, component, port, grpcPort, prefix (LEYDEN_X_), resources, settings, mounts, identity. */}}
{{- define "leyden.container" -}}
- name: {{ .component }}
  image: {{ include "leyden.image" . | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  ports:
    - {name: http, containerPort: {{ .port }}}
    {{- with .grpcPort }}
    - {name: grpc, containerPort: {{ . }}}
    {{- end }}
  env:
    {{- include "leyden.env" . | nindent 4 }}
    - {name: {{ .prefix }}HOST, value: 0.0.0.0}
    - {name: {{ .prefix }}PORT, value: {{ .port | quote }}}
    {{- with .grpcPort }}
    - {name: {{ $.prefix }}GRPC_PORT, value: {{ . | quote }}}
    {{- end }}
    {{- if .identity }}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    {{- end }}
    {{- range $name, $value := .settings }}
    - {name: {{ $.prefix }}{{ $name }}, value: {{ $value | quote }}}
    {{- end }}
  readinessProbe: {httpGet: {path: /healthz, port: {{ .port }}}, periodSeconds: 5}
  livenessProbe: {httpGet: {path: /healthz, port: {{ .port }}}, periodSeconds: 20, failureThreshold: 6}
  resources: {{- toYaml .resources | nindent 4 }}
  securityContext: {{- include "leyden.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    {{- range .mounts }}
    - {{ toJson . }}
    {{- end }}
{{- end }}

{{/* One Deployment of ours: what the container takes, and replicas, grace, volumes, beside (more containers). */}}
{{- define "leyden.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  labels: {{- include "leyden.labels" . | nindent 4 }}
spec:
  replicas: {{ .replicas }}
  selector:
    matchLabels: {{- include "leyden.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "leyden.labels" . | nindent 8 }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ .port | quote }}
    spec:
      automountServiceAccountToken: false
      # Kubernetes would otherwise inject LEYDEN_GATEWAY_PORT=tcp://... into a release named leyden.
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .grace | default 30 }}
      securityContext: {{- include "leyden.podSecurity" . | nindent 8 }}
      containers:
        {{- .containers | default (include "leyden.container" .) | nindent 8 }}
      volumes:
        - {name: tmp, emptyDir: {}}
        {{- range .volumes }}
        - {{ toJson . }}
        {{- end }}
{{- end }}

{{- define "leyden.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  labels: {{- include "leyden.labels" . | nindent 4 }}
spec:
  selector: {{- include "leyden.selector" . | nindent 4 }}
  ports:
    - {name: http, port: {{ .port }}, targetPort: http}
    {{- with .grpcPort }}
    - {name: grpc, port: {{ . }}, targetPort: grpc, appProtocol: grpc}
    {{- end }}
{{- end }}
