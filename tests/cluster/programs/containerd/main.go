// Command containerd is containerd as it is released, and one command more: it puts images into a
// containerd that runs, where pods of a kubelet find them.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/containerd/v2/client"
	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
)

func main() {
	run := command.App().Run
	if len(os.Args) > 2 && os.Args[1] == "import-images" {
		run = importImages
	}
	if err := run(context.Background(), os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		os.Exit(1)
	}
}

// importImages takes the socket of a containerd and paths of archives, behind two words.
func importImages(ctx context.Context, words []string) error {
	containerd, err := client.New(words[2], client.WithDefaultNamespace("k8s.io"))
	if err != nil {
		return err
	}
	defer containerd.Close()
	for _, path := range words[3:] {
		if err := importImage(ctx, containerd, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func importImage(ctx context.Context, containerd *client.Client, path string) error {
	archive, err := os.Open(path)
	if err != nil {
		return err
	}
	defer archive.Close()
	images, err := containerd.Import(ctx, archive)
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := client.NewImage(containerd, image).Unpack(ctx, "overlayfs"); err != nil {
			return err
		}
	}
	return nil
}
