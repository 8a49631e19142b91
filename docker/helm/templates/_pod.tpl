{{/* What the pods of master and workers have in common: call with (dict "root" $ "part" "master"). */}}

{{- define "labels" -}}
app.kubernetes.io/name: llama-load
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "annotations" -}}
cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
karpenter.sh/do-not-disrupt: "true"
{{- end }}

{{- define "pod" -}}
enableServiceLinks: false  # their variables would begin with LLAMA_LOAD_, as those of flags do
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ .root.Values.graceSeconds }}  # SIGTERM ends the run; reports and records take their time
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile:
    type: RuntimeDefault
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "notBesideTheServer" -}}
# Not on a node of the server, whose CPU a client takes. Label the server's pods so.
- topologyKey: kubernetes.io/hostname
  namespaceSelector: {}
  labelSelector:
    matchLabels:
      llama-load/role: server
{{- end }}

{{- define "keys" -}}
- name: LLAMA_LOAD_SWARM_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .Values.secret }}
      key: swarm-key
- name: LLAMA_LOAD_API_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .Values.secret }}
      key: api-key
      optional: true
{{- end }}

{{- define "container" -}}
startupProbe:
  exec:
    command: [test, -e, /tmp/alive]
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:  # a process whose event loop hangs is ended: of a worker it is started again, of the master it fails the Job
  exec:
    command: [sh, -c, 'test -n "$(find /tmp/alive -mmin -1)"']
  periodSeconds: 30
  failureThreshold: 3
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: runs
    mountPath: /load/runs
  - name: tmp
    mountPath: /tmp
{{- end }}
