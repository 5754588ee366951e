module ullage.dev/localcluster/katib

go 1.26.0

tool github.com/kubeflow/katib/cmd/suggestion/goptuna/v1beta1

require (
	github.com/c-bata/goptuna v0.8.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/kubeflow/katib v0.19.0 // indirect
	golang.org/x/net v0.41.0 // indirect
	golang.org/x/sys v0.33.0 // indirect
	golang.org/x/text v0.26.0 // indirect
	gonum.org/v1/gonum v0.8.2 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250303144028-a0af3efb3deb // indirect
	google.golang.org/grpc v1.72.1 // indirect
	google.golang.org/protobuf v1.36.6 // indirect
	k8s.io/klog/v2 v2.130.1 // indirect
)
