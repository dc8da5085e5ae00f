{{- define "quartermaster.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "quartermaster.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The selector labels of pods; takes a list (root, process). */}}
{{- define "quartermaster.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "quartermaster.labels" -}}
{{ include "quartermaster.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{- define "quartermaster.catalog" -}}
{{- if .Values.models.existingConfigMap }}{{ .Values.models.existingConfigMap }}
{{- else if .Values.models.catalog }}{{ include "quartermaster.name" . }}-models{{ end }}
{{- end }}

{{/* A container with its mounts; takes a dict (root, name, process). */}}
{{- define "quartermaster.pod" -}}
{{- $root := .root }}
{{- $process := .process }}
{{- $catalog := and $process.catalog (include "quartermaster.catalog" $root) }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $process.stopSeconds }}
terminationGracePeriodSeconds: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- with $root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "quartermaster.image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: {{ toJson $process.command }}
    env:
      - { name: SECRETS_DIRECTORY, value: /etc/quartermaster/secrets }
      - { name: BASE_URL, value: {{ $root.Values.baseUrl | quote }} }
      - { name: BLOB_STORE, value: {{ $root.Values.blobStore | quote }} }
      {{- if $catalog }}
      - { name: MODELS_CONFIG, value: /etc/quartermaster/models/models.toml }
      {{- end }}
      {{- range $name, $value := merge (dict) ($process.settings | default dict) $root.Values.settings }}
      - { name: {{ $name }}, value: {{ $value | toString | quote }} }
      {{- end }}
    {{- if and $process.providerKeys $root.Values.secrets.providers }}
    envFrom:
      - secretRef: { name: {{ $root.Values.secrets.providers }} }
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: { drop: [ALL] }
    {{- with $process.resources }}
    resources: {{ toJson . }}
    {{- end }}
    {{- if not .isRelease }}
    ports:
      - { name: operations, containerPort: 9080 }
      {{- with $process.port }}
      - { name: http, containerPort: {{ . }} }
      {{- end }}
    {{- with $process.leaveSeconds }}
    lifecycle: { preStop: { exec: { command: [sleep, {{ . | quote }}] } } }
    {{- end }}
    startupProbe:
      httpGet: { path: /healthz, port: operations }
      periodSeconds: 2
      timeoutSeconds: 4
      failureThreshold: 60
    livenessProbe:
      httpGet: { path: /healthz, port: operations }
      periodSeconds: 10
      timeoutSeconds: 4
      failureThreshold: 6
    readinessProbe:
      httpGet: { path: /readyz, port: operations }
      periodSeconds: 3
      timeoutSeconds: 4
    {{- end }}
    volumeMounts:
      - { name: secrets, mountPath: /etc/quartermaster/secrets, readOnly: true }
      - { name: tmp, mountPath: /tmp }
      {{- if $catalog }}
      - { name: models, mountPath: /etc/quartermaster/models, readOnly: true }
      {{- end }}
      {{- with $root.Values.volumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: secrets
    projected:
      defaultMode: 0440
      sources:
        - secret: { name: {{ required "secrets.application names the Secret of the settings" $root.Values.secrets.application }} }
        {{- if and .isRelease $root.Values.secrets.migrations }}
        - secret: { name: {{ $root.Values.secrets.migrations }} }
        {{- end }}
  - { name: tmp, emptyDir: { sizeLimit: 1Gi } }
  {{- if $catalog }}
  - { name: models, configMap: { name: {{ include "quartermaster.catalog" $root }} } }
  {{- end }}
  {{- with $root.Values.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
